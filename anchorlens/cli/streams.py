"""Safe standard streams, for closed streams, full disks, narrow encodings and an invalid COLUMNS."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from typing import Any, TextIO

EXIT_LOST, EXIT_NO_READER = 1, 141


class OutputLost(SystemExit):
    """The exit of the program after a write to stdout has failed."""


class _DescriptorFile(io.FileIO):
    """A standard stream that writes nothing more after its first failed write.

    A failure of stdout ends the program, without a message and with exit code 141, as after SIGPIPE, if the
    reader closed stdout. If stderr fails, the work continues without messages.
    """

    def write(self, data: Any) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write the data, or discard the data once a write has failed."""
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 2:
                return memoryview(data).nbytes
            if error.errno in (errno.EPIPE, errno.ESHUTDOWN):
                raise OutputLost(EXIT_NO_READER) from None
            print(f"anchorlens: cannot write the output: {error.strerror}", file=sys.stderr)
            raise OutputLost(EXIT_LOST) from None


def prepare_streams() -> None:
    """Prepare the standard streams and the terminal size in the environment so that writing is safe.

    A closed stream becomes /dev/null. A standard stream escapes each character that its encoding lacks. The
    function removes a terminal size that is not a number of 20 to 9999.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # the lowest free number, so that no other file takes the number of a stream
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout, sys.stderr = _guarded(sys.stdout, 1), _guarded(sys.stderr, 2)
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):  # of other texts, rich and typer fail
        if not re.fullmatch("[2-9][0-9]|[1-9][0-9]{2,3}", os.environ.get(name, "80")):
            del os.environ[name]


def _guarded(stream: TextIO | None, number: int) -> TextIO:
    """Make a stream like the given stream, with a guarded descriptor."""
    return io.TextIOWrapper(
        io.BufferedWriter(_DescriptorFile(number, "wb", closefd=False)),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )
