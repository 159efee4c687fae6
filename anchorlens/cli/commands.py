"""`app`: the commands of `anchorlens`, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorlens.cli.audits import audit_command
from anchorlens.cli.benchmarks import benchmark_command
from anchorlens.cli.controls import control_command
from anchorlens.cli.models import evaluate_command, probe_command
from anchorlens.cli.sweeps import diagram_command, status_command, sweep_command
from anchorlens.cli.training import train_command
from anchorlens.cli.usage import BoundedGroup
from anchorlens.cli.verdicts import classify_command, demo_command

app = typer.Typer(
    cls=BoundedGroup,
    help="Did a transformer learn the rules, or memorise the answers?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = {
    "train": train_command,
    "evaluate": evaluate_command,
    "probe": probe_command,
    "classify": classify_command,
    "sweep": sweep_command,
    "status": status_command,
    "diagram": diagram_command,
    "control": control_command,
    "audit": audit_command,
    "benchmark": benchmark_command,
    "demo": demo_command,
}
"""By name, in the order of the help."""

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib import metadata

        typer.echo(metadata.version("anchorlens"))
        raise typer.Exit()
