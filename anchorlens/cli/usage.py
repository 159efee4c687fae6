"""What happens before the options of a command are read: `--tasks` registers tasks, usage errors are cut."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from anchorlens.cli.errors import EXIT_USAGE, fail
from anchorlens.cli.help import HelpCommand, group_lines, width
from anchorlens.safe import safe_text

_LONGEST = 300
"""Characters of what a usage error says."""


class BoundedGroup(TyperGroup):
    """Commands whose usage errors repeat no long or steering text, and which know tasks of one's own."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options before a command."""
        with _bounded():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Read a command's options, and run it."""
        with _bounded():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before a command; without any word, show the help."""
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say what each command is for."""
        formatter.write("\n".join(group_lines(self, ctx.command_path, width())) + "\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command, and register the tasks of `--tasks`, whose fields are options of it."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        try:
            _read_tasks(rest)
            function: Any = getattr(command.callback, "__wrapped__", None)
            if offer := getattr(function, "offer_fields_of", None):
                from anchorlens.tasks.registry import TASKS, tasks

                if (registered := tasks()) != TASKS:
                    offer(registered)
                    alone = typer.Typer(add_completion=False)
                    alone.command(name, cls=HelpCommand)(function)
                    command = typer.main.get_command(alone)
                    offer(TASKS)
        except ValueError as error:
            fail(str(error), EXIT_USAGE)
        return name, command, rest


def _read_tasks(arguments: Sequence[str]) -> None:
    """Register the tasks of the files that `--tasks` names.

    Raises:
        ValueError: a file that holds none.
    """
    paths = [word.removeprefix("--tasks=") for word in arguments if word.startswith("--tasks=")]
    paths += [path for word, path in itertools.pairwise(arguments) if word == "--tasks"]
    for path in paths:
        from anchorlens.tasks.registry import own_tasks

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
