"""How the command line ends: exit codes, and errors in one line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from anchorlens.foreign import printable

_LONGEST = 1000
"""Characters of an error; ours are shorter, what they repeat may be anything."""
EXIT_FAILED, EXIT_USAGE, EXIT_CHECKPOINT, EXIT_UNDECIDED = 1, 2, 3, 4


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong, and end."""
    typer.echo(f"anchorlens: {printable(message, _LONGEST)}", err=True)
    raise typer.Exit(code)


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that are the caller's or the disk's into one line and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            fail("interrupted; a run with --out continues with --resume, a sweep with the same command", 130)
        except ValueError as error:
            code = EXIT_CHECKPOINT if type(error).__name__ == "CheckpointError" else EXIT_USAGE
            fail(str(error), code)
        except OSError as error:
            fail(f"{error.filename or 'file'}: {error.strerror or error}", EXIT_FAILED)

    return wrapped
