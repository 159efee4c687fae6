"""The exit codes of the command line, and the output of errors on one line."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import typer

from anchorlens.cli.interruption import EXIT_INTERRUPTED, INTERRUPTED
from anchorlens.models.devices import is_out_of_memory
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.child_processes import WorkerKilled

LONGEST = 1200
"""The largest number of characters of an error. An error may quote a text of any length."""
MEMORY = (
    "there is not enough memory. Use a smaller model or batch, fewer or shorter sequences, or fewer workers"
)
EXIT_FAILED, EXIT_USAGE, EXIT_CHECKPOINT, EXIT_UNDECIDED = 1, 2, 3, 4


def fail(message: str, code: int) -> NoReturn:
    """Print an error on one line, and exit with the given exit code."""
    complain(message)
    raise typer.Exit(code)


def say(message: str) -> None:
    """Print a message on stderr as one printable line, and flush stderr."""
    # not with click, which writes UTF-8 whatever the stream's encoding
    print(safe_text(message, LONGEST), file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """Print an error on stderr as one printable line."""
    say(f"anchorlens: {message}")


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command report a user, disk or memory error on one line, and exit with an error code."""

    @functools.wraps(command)
    def wrapped(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            fail(INTERRUPTED, EXIT_INTERRUPTED)
        except SystemExit as error:
            if type(error) is not SystemExit:  # OutputLost
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            fail(
                f"{place.filename}: line {place.lineno} must not end the program, got "
                f"sys.exit({safe_repr(error.code)}) before there was a result. Remove this call",
                EXIT_FAILED,
            )
        except ValueError as error:
            code = EXIT_CHECKPOINT if type(error).__name__ == "CheckpointError" else EXIT_USAGE
            fail(str(error), code)
        except OSError as error:
            cause = str(error.strerror or error) or type(error).__name__
            fail(f"{error.filename}: {cause}" if error.filename else cause, EXIT_FAILED)
        except WorkerKilled as error:
            fail(str(error), EXIT_FAILED)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fail(MEMORY, EXIT_FAILED)

    return wrapped
