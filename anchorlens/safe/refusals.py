"""Refuse files that cannot be read safely and completely, or that are too large, in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from anchorlens.texts import first_line, safe_repr, safe_text

_LONGEST_PATH, _LONGEST_CAUSE = 500, 600
_SENSELESS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RuntimeError)
"""The exceptions that values of wrong types cause; our own checks also raise ValueError."""


class CheckpointError(ValueError):
    """The error about a file that cannot be read safely and completely.

    The message is one line with the file and the cause.
    """

    def __init__(self, path: str | os.PathLike[str], cause: str) -> None:
        self.path = os.fspath(path)
        super().__init__(self.path, cause)  # both, so that it survives pickling between processes

    def __str__(self) -> str:
        path, cause = self.args
        return f"{safe_text(path, _LONGEST_PATH)}: {safe_text(cause, _LONGEST_CAUSE)}"


def incomplete(error: Exception) -> ValueError:
    """Make the refusal of a file whose reader failed with an error."""
    return ValueError(
        f"the file must be complete, got an error: {first_line(error)}. The file is truncated or damaged. "
        "Copy or download the file again"
    )


def damaged(rule: str) -> ValueError:
    """Make the refusal of a damaged file. The argument is the broken rule, with what was found."""
    return ValueError(f"{rule}. The file is damaged. Copy or download the file again")


def unsafe(rule: str, advice: str = "Save the weights alone") -> ValueError:
    """Make the refusal of a file that is not data only. The arguments are the broken rule and advice."""
    return ValueError(f"unsafe: {rule}. Nothing ran. {advice}")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], problem: str | None = None) -> Iterator[None]:
    """Convert an error of reading a file to a `CheckpointError` of one line.

    Args:
        path: the path of the file.
        problem: the problem with the file, for code that interprets the values of the file. With a problem,
            every exception that invalid values cause is a refusal. With None, only OSError and ValueError are
            refusals.

    Raises:
        CheckpointError: If the code in the `with` block raises an error that counts as a refusal.
    """
    refused = _SENSELESS if problem else (ValueError,)
    try:
        yield
    except CheckpointError:
        raise
    except IsADirectoryError:
        raise CheckpointError(path, "cannot be read: Is a directory; name a file in it") from None
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None
    except refused as error:
        raise CheckpointError(path, f"{problem}: {_cause(error)}" if problem else str(error)) from None


def _cause(error: Exception) -> str:
    """Return the message of our own refusals, or the meaning of Python's errors for the file."""
    if type(error) is ValueError:
        return str(error)
    if isinstance(error, KeyError):
        return f"{safe_repr(error.args[0] if error.args else '')} is missing"
    return "a value in the file must have another type"


def check_at_most(most: int, n: int, what: str, unit: str) -> None:
    """Refuse a count that is larger than in any legitimate file.

    Args:
        most: the largest allowed number.
        n: the number that was found.
        what: the name of the object for the message.
        unit: the name of the counted items.

    Raises:
        ValueError: If `n` is more than `most`.
    """
    if n > most:
        raise ValueError(
            f"unsafe: {what} must have at most {most:,} {unit}, got at least {n:,}. anchorlens refused the "
            "file. Use another copy of the file"
        )
