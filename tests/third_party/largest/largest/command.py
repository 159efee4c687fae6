"""`anchorlens orbits`."""

from typing import Annotated

import typer

from anchorlens.cli import in_group, one_line_errors
from largest.result import orbits


@in_group("Train and compare many models")
@one_line_errors
def orbits_command(modulus: Annotated[int, typer.Argument(help="The modulus, odd and at least 3.")]) -> None:
    """Count the orbits of doubling modulo a number.

    Examples:
        anchorlens orbits 7
        anchorlens orbits 11
    """
    typer.echo(len(orbits(modulus).members))
