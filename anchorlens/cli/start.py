"""The entry point, which hears Ctrl-C at any time and prepares the streams before slow imports."""

from __future__ import annotations

import os
import sys

from anchorlens.cli.interruption import end


def main() -> None:
    """Run the command line, and exit with the exit code of the command.

    A program that is started with `nohup`, or with `&` in a script, ignores Ctrl-C.
    """
    try:
        _run()
    except KeyboardInterrupt:
        end()
    finally:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # quiet during the exit, too
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
