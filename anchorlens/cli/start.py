"""The entry point, which catches Ctrl-C and prepares the streams before slow imports."""

from __future__ import annotations

import os
import sys

from anchorlens.cli.interruption import EXIT_INTERRUPTED, catch_interruptions, let_go, say_interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, and exit with the exit code of the command."""
    catch_interruptions()
    try:
        code = _run()
    except KeyboardInterrupt:
        say_interrupted()
        code = EXIT_INTERRUPTED
    let_go()
    sys.exit(code)


def _run() -> str | int | None:
    from anchorlens.cli.streams import EXIT_NO_READER, OutputLost, prepare_streams

    prepare_streams()
    from anchorlens.training.child_processes import SAFE_PATH, keep_freed_memory, sleeping_threads

    keep_freed_memory()

    # child processes import nothing from the current folder
    os.environ.update({SAFE_PATH: "1", **sleeping_threads()})
    try:
        from anchorlens.cli.commands import app

        try:
            app()
        finally:
            sys.stdout.flush()
    except OutputLost as lost:
        if lost.code != EXIT_NO_READER:
            print(f"anchorlens: cannot write the output: {lost.reason}", file=sys.stderr)
        return lost.code
    except SystemExit as end:
        return end.code
    return 0
