"""How Ctrl-C ends the program: with one line and exit code 130, at any time."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; a run with --out continues with --resume, other folders with the same command"


def interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the program where anchorlens cannot catch the exception.

    During an import, the imported module might catch the exception, and Python only prints an exception of a
    destructor. There the program prints one line and ends at once. No data are lost, because anchorlens
    writes files atomically.
    """
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.startswith("<frozen importlib"):
            end()
        frame = frame.f_back
    raise KeyboardInterrupt


def end() -> NoReturn:
    """End the program at once, with a message on file descriptor 2, because sys.stderr may no longer work."""
    os.write(2, f"anchorlens: {INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)
