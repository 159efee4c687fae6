"""The entry point, which hears Ctrl-C at any time and prepares the streams before slow imports."""

from __future__ import annotations

import atexit
import os
import sys

from anchorlens.cli.interruption import end, interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    import _signal as signal  # without signal's enums: while those are imported, Ctrl-C is a traceback


def main() -> NoReturn:
    """Run the command line, and exit with the exit code of the command.

    Ctrl-C raises KeyboardInterrupt. A program that is started with `nohup`, or with `&` in a script, still
    ignores Ctrl-C.
    """
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, interrupted)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the last: Python's end takes no time
    try:
        _run()
    except KeyboardInterrupt:
        end()
    finally:
        if hears:  # an exception would be lost in what runs at the exit
            signal.signal(signal.SIGINT, lambda number, frame: end())
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
