"""The object `app`, with the commands of `anchorlens` and of installed packages, in the order of the help."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

from anchorlens.cli.groups import OTHERS
from anchorlens.cli.help import EVERYTHING, HelpCommand
from anchorlens.cli.models import evaluate_command, probe_command
from anchorlens.cli.training import train_command
from anchorlens.cli.usage import BoundedGroup
from anchorlens.cli.verdicts import classify_command, demo_command
from anchorlens.plugins import entry_points

app = typer.Typer(
    cls=BoundedGroup,
    help="Test whether a transformer learnt the rules or memorised the answers. Models "
    "memorise (Phase 1), generalise in distribution (Phase 2) or compose (Phase 3).",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h", EVERYTHING]},
)

GROUPS: dict[str, dict[str, Callable[..., object]]] = {
    "See four models first": {"demo": demo_command},
    "Train and classify a model": {
        "train": train_command,
        "evaluate": evaluate_command,
        "classify": classify_command,
        "probe": probe_command,
    },
    "Train and compare many models": {},
    OTHERS: {},
}
"""The groups of commands by title, in the order of the help. Each group contains its commands by name."""

for _point in entry_points("anchorlens.commands"):
    with contextlib.suppress(Exception):  # `usage` says what is wrong when the command is called
        _function = _point.load()
        if not any(_point.name in _commands for _commands in GROUPS.values()):
            GROUPS[getattr(_function, "group", OTHERS)][_point.name] = _function

for _title, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        app.command(_name, cls=HelpCommand, rich_help_panel=_title)(_command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(metadata.version("anchorlens"))
        raise typer.Exit()
