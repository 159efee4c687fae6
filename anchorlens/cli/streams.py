"""Safe standard streams, for closed streams, full disks, narrow encodings and an invalid COLUMNS."""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from typing import Any, TextIO

EXIT_LOST, EXIT_NO_READER = 1, 141
_PLAIN = {"±": "+-", "−": "-", "–": "-", "·": "*", "×": "x", "…": "...", "→": "->", "≠": "!=", "²": "^2"}
"""The replacements of characters that a stream cannot encode. Other characters become escapes."""
_LEAST = {"COLUMNS": 20, "LINES": 2, "TERMINAL_WIDTH": 20}
"""The smallest size in which libraries can draw, by the environment variable that contains the size."""


class OutputLost(SystemExit):
    """The exit of the program after a write to stdout has failed.

    The exit code is 141, as after SIGPIPE, if the reader closed stdout. The program prints no message in this
    case. The exit code is 1 after any other failure of stdout.
    """

    def __init__(self, error: OSError):
        super().__init__(EXIT_NO_READER if error.errno in (errno.EPIPE, errno.ESHUTDOWN) else EXIT_LOST)
        self.reason = error.strerror or str(error)


class _DescriptorFile(io.FileIO):
    """A file descriptor that writes nothing more after its first failed write.

    A failure of stdout ends the program. If stderr fails, the work continues without messages.
    """

    ends_program = lost = False

    def write(self, data: bytes) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write the data, or discard the data once a write has failed."""
        if not self.lost:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = True
                if self.ends_program:
                    raise OutputLost(error) from None
        return memoryview(data).nbytes


def prepare_streams() -> None:
    """Prepare the standard streams and the terminal size in the environment so that writing is safe.

    A closed stream becomes /dev/null. A standard stream replaces each character that its encoding lacks with
    plain characters. The function removes a terminal size that is not a number of 1 to 4 digits. The function
    also removes a size that is too small for the libraries that draw in a terminal.
    """
    _open_closed()
    codecs.register_error("anchorlens.plain", _plain)
    sys.stdout, sys.stderr = _guarded(sys.stdout, 1, True), _guarded(sys.stderr, 2, False)
    for name, least in _LEAST.items():
        size = os.environ.get(name)
        if size is not None and not (re.fullmatch("[0-9]{1,4}", size) and int(size) >= least):
            del os.environ[name]


def _open_closed() -> None:
    """Open /dev/null for closed standard streams, so that no other file takes the number of a stream."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    if null > 2:
        os.close(null)
    else:
        os.set_inheritable(null, True)


def _guarded(stream: TextIO | None, number: int, ends_program: bool) -> TextIO:
    """Make a stream like the given stream, with a guarded descriptor."""
    if stream is None:
        number = os.open(os.devnull, os.O_WRONLY)
    else:
        stream.flush()
    descriptor: Any = _DescriptorFile(number, "wb", closefd=False)
    descriptor.ends_program = ends_program
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors="anchorlens.plain",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(
        _PLAIN.get(x) or x.encode("ascii", "backslashreplace").decode() for x in letters
    ), error.end
