"""Functions that end the program with one line and exit code 130 after Ctrl-C at any time."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signal  # without signal's enums: while those are imported, Ctrl-C is a traceback

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; a run with --out continues with --resume, sweep and control with the same command"


def catch_interruptions() -> None:
    """Make Ctrl-C raise KeyboardInterrupt, or end the program where anchorlens cannot catch the exception.

    During an import, the imported module might catch the exception. In a destructor, Python only prints the
    exception. During an import and in a destructor, the program therefore prints one line and ends at once.
    No data are lost, because anchorlens writes files atomically. A program that is started with `nohup`, or
    with `&` in a script, still ignores Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _interrupted)
    sys.unraisablehook = _unraisable


def let_go() -> None:
    """Restore the default handler, with which Ctrl-C during the exit ends the program without a message."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def say_interrupted() -> None:
    """Print the message directly to file descriptor 2, because sys.stderr may no longer work."""
    try:  # noqa: SIM105 - contextlib is not imported yet, and must not be now
        os.write(2, f"anchorlens: {INTERRUPTED}\n".encode())
    except OSError:
        pass


def _interrupted(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(arguments: UnraisableHookArgs) -> None:
    if issubclass(arguments.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(arguments)


def _end() -> NoReturn:
    say_interrupted()
    os._exit(EXIT_INTERRUPTED)
