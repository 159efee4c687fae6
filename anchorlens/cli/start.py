"""The entry point, which hears Ctrl-C at any time and prepares the streams before slow imports."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signal  # without signal's enums: while those are imported, Ctrl-C is a traceback

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; a run with --out continues with --resume, other folders with the same command"


def main() -> NoReturn:
    """Run the command line, and exit with the exit code of the command.

    Ctrl-C raises KeyboardInterrupt. A program that is started with `nohup`, or with `&` in a script, still
    ignores Ctrl-C.
    """
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, interrupted)
    try:
        _run()
    except KeyboardInterrupt:
        _end()
    finally:
        if hears:  # during the exit, Ctrl-C ends the program without a message
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit()


def _run() -> None:
    from anchorlens.cli.streams import prepare_streams

    prepare_streams()
    from anchorlens.training.child_processes import SAFE_PATH, keep_freed_memory, sleeping_threads

    keep_freed_memory()

    # child processes import nothing from the current folder
    os.environ.update({SAFE_PATH: "1", **sleeping_threads()})
    from anchorlens.cli.commands import app

    try:
        app()
    finally:
        sys.stdout.flush()


def interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end the program where anchorlens cannot catch the exception.

    During an import, the imported module might catch the exception, and Python only prints an exception of a
    destructor. There the program prints one line and ends at once. No data are lost, because anchorlens
    writes files atomically.
    """
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end() -> NoReturn:
    os.write(2, f"anchorlens: {INTERRUPTED}\n".encode())  # sys.stderr may no longer work
    os._exit(EXIT_INTERRUPTED)
