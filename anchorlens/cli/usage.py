"""The group of commands, which registers the tasks of `--tasks` and shortens usage errors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from anchorlens.cli.errors import EXIT_USAGE, fail
from anchorlens.cli.help import HelpCommand, group_lines, width
from anchorlens.configuration import suggestion
from anchorlens.plugins import installed, what_to_install
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
        if command is None:
            return name, command, rest
        try:
            _read_tasks(rest)
            function: Any = getattr(command.callback, "__wrapped__", None)
            offer = getattr(function, "offer_fields_of", None)
            if offer and (registered := tasks()) != (offered := function.tasks_offered):
                offer(registered)
                alone = typer.Typer(add_completion=False)
                alone.command(name, cls=HelpCommand)(function)
                command = typer.main.get_command(alone)
                offer(offered)
        except ValueError as error:
            fail(str(error), EXIT_USAGE)
        return name, command, rest


def _advice(name: str, names: Sequence[str]) -> str:
    """Return advice on an unknown command, which may be misspelled, missing, or fail to load."""
    if advice := what_to_install("anchorlens.commands", name):
        return f"the command {advice}"
    try:
        list(installed("anchorlens.commands", "command", name))
    except ValueError as error:
        return str(error)
    return (
        f"the command must be available, got {safe_repr(name)}. Products of anchorlens and other packages "
        f"add commands (pip install --force-reinstall anchorlens installs ours). {suggestion(name, names)}"
    )


def _read_tasks(arguments: Sequence[str]) -> None:
    """Register the tasks of the files that `--tasks` names.

    Raises:
        ValueError: If a file has no task.
    """
    paths = [word.removeprefix("--tasks=") for word in arguments if word.startswith("--tasks=")]
    paths += [path for word, path in itertools.pairwise(arguments) if word == "--tasks"]
    for path in paths:
        own_tasks(path)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str) and hasattr(error, "format_message"):  # click's
            error.message = safe_text(message, _LONGEST)  # pyright: ignore[reportAttributeAccessIssue]
        raise
