"""Ctrl-C: one line and exit code 130, at whatever moment it comes."""

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
    """Have Ctrl-C raise KeyboardInterrupt where that can be caught, and else end the program with one line.

    Modules that are being imported catch what they should not, and what is raised in a destructor is
    printed and forgotten; nothing is lost by ending there, for files appear whole or not at all. A program
    that was told to ignore Ctrl-C (`nohup`, `&` in a script) goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _interrupted)
    sys.unraisablehook = _unraisable


def let_go() -> None:
    """From here on, when all is done but the leaving, Ctrl-C ends the program without a word."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def say_interrupted() -> None:
    """The one line, whatever became of the streams."""
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
