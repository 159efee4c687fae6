"""Checkpoints that the system does not let us read: one line, and exit code 3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from anchorlens.cli.errors import EXIT_CHECKPOINT, fail
from anchorlens.safe import printable


def unreadable_message(path: Path, error: Exception) -> str:
    """Why a checkpoint was not read, in one line."""
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else path
        return f"{printable(where)}: {printable(error.strerror or error)}"
    return printable(error, _LONGEST)


@contextlib.contextmanager
def reading_checkpoint(path: Path) -> Iterator[None]:
    """Where a file or folder cannot be read, end with the code for checkpoints that cannot."""
    try:
        yield
    except OSError as error:
        fail(unreadable_message(path, error), EXIT_CHECKPOINT)


_LONGEST = 1000
"""Characters of a message; those of ours are shorter."""
