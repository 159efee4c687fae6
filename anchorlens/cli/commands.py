"""The object `app`, with the commands of `anchorlens` and of installed packages, in the order of the help."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anchorlens import plugins
from anchorlens.cli.help import EVERYTHING, HelpCommand, fields_of, group_lines, width
from anchorlens.cli.interruption import end
from anchorlens.cli.models import evaluate_command, probe_command
from anchorlens.cli.shared import EXIT_USAGE, OTHERS, fail
from anchorlens.cli.training import train_command
from anchorlens.cli.verdicts import classify_command, demo_command
from anchorlens.configuration import suggestion
from anchorlens.tasks.registry import own_tasks, tasks
from anchorlens.texts import safe_repr, safe_text

_LONGEST = 300
"""The largest number of characters of a usage error."""


class BoundedGroup(TyperGroup):
    """A command group that shortens usage errors and registers the user's tasks."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the options before a command."""
        with _bounded():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Parse the options of a command, and run the command."""
        with _bounded():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before a command, or show the help if no arguments are given."""
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the main help."""
        formatter.write("\n".join(group_lines(self, ctx.command_path, width())) + "\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command, and register the tasks of `--tasks`.

        The fields of these tasks become options of the command.
        """
        if args[0] not in self.commands and not args[0].startswith("-"):
            fail(_advice(args[0], list(self.commands)), EXIT_USAGE)
        name, command, rest = super().resolve_command(ctx, args)
        paths = [word.removeprefix("--tasks=") for word in rest if word.startswith("--tasks=")]
        paths += [path for word, path in itertools.pairwise(rest) if word == "--tasks"]
        try:
            for path in paths:
                own_tasks(path)
            if fields := fields_of(command):
                fields.check(command, tasks())
        except ValueError as error:
            fail(str(error), EXIT_USAGE)
        return name, command, rest


def _advice(name: str, names: Sequence[str]) -> str:
    """Return advice on an unknown command, which may be misspelled, missing, or fail to load."""
    if advice := plugins.what_to_install("anchorlens.commands", name):
        return f"the command {advice}"
    try:
        list(plugins.installed("anchorlens.commands", "command", name, check=_check_command, must=True))
    except ValueError as error:
        return str(error)
    return (
        f"the command must be available, got {safe_repr(name)}. {suggestion(name, names)} Products of "
        f"anchorlens and other packages add commands. {plugins.REINSTALL}"
    )


def _check_command(function: object) -> None:
    """Check that an installed command is a function with options that typer can read."""
    if not inspect.isfunction(function):
        raise ValueError(f"a command must be a function, got {safe_repr(function)}")
    if plugins.is_own(function):
        alone = typer.Typer(add_completion=False)
        alone.command()(function)
        typer.main.get_command(alone)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:  # typer would end with exit code 1
        end()
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str) and hasattr(error, "format_message"):  # click's
            error.message = safe_text(message, _LONGEST)  # pyright: ignore[reportAttributeAccessIssue]
        raise


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
}
"""The groups of commands by title, in the order of the help. Each group contains its commands by name."""

for _name in dict.fromkeys(point.name for point in plugins.entry_points("anchorlens.commands")):
    _found = plugins.installed("anchorlens.commands", "command", _name, check=_check_command)
    for _function, _origin in _found:
        if any(_name in _commands for _commands in GROUPS.values()):
            plugins.leave_out(f"{_origin} must have a new name, got the name of another command. Rename it")
        else:
            GROUPS.setdefault(getattr(_function, "group", OTHERS), {})[_name] = _function
GROUPS[OTHERS] = GROUPS.pop(OTHERS, {})  # the last group of the help

for _title, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        app.command(_name, cls=HelpCommand, rich_help_panel=_title)(_command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(metadata.version("anchorlens"))
        raise typer.Exit()
