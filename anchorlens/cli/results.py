"""The output of a command, which is the plot of --plot, and JSON or readable text on stdout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anchorlens.cli.errors import say


def draw_and_print(
    result: Any, as_json: bool, plot: Path | None, print_for_people: Callable[[Any], object]
) -> None:
    """Write the plot of a result if the path `plot` is given, and print the result as text or JSON."""
    if plot is not None:
        from anchorlens import plots

        plots.save(result.plot(), plot, result)
        say(f"the picture is in {plot}")
    if as_json:
        from anchorlens.show.terminal.console import print_json

        print_json(result.to_dict())
    else:
        print_for_people(result)
