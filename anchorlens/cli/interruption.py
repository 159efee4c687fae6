"""How Ctrl-C ends the program: with one line and exit code 130."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; a run with --out continues with --resume, other folders with the same command"


def end() -> NoReturn:
    """End the program at once, with a message on file descriptor 2, because sys.stderr may no longer work.

    No data are lost, because anchorlens writes files atomically.
    """
    os.write(2, f"anchorlens: {INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)
