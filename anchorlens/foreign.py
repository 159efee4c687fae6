"""What others wrote: texts made printable, and files read whole, bounded and as data alone.

A file's name or content may be anything: control characters that steer a terminal, a text of megabytes, a
pipe that never ends, brackets nested a million deep. Whatever of it is shown goes through `printable` or
`shown`; whatever is read goes through `read_bytes`, `read_json` or `read_toml`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

LONGEST = 200
"""Characters of a foreign text that are shown."""
DEEPEST = 64
"""Lists and tables within each other that JSON or TOML may hold."""
MOST_DIGITS = 30
"""Digits that an integer in a text or a file may have."""
MOST_BYTES = 4 * 2**20
"""Bytes of a file that is read whole, where nothing else is said."""
MOST_VALUES = 1_000_000
"""Values in a JSON text, where nothing else is said: the smallest takes 30 times its bytes in memory."""


def printable(text: object, most: int | None = LONGEST) -> str:
    r"""A text as one line that no terminal obeys: white space folded, what cannot be printed escaped.

    Args:
        text: anything; its `str`.
        most: characters that are shown; None for all.

    >>> printable("a\n\x1b[31mred\x07"), printable("x" * 300, 5)
    ('a \\x1b[31mred\\x07', 'xxxx…')
    """
    line = str(text)
    if most is not None and len(line) > most:
        line = f"{line[: most - 1]}…"
    line = " ".join(line.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


_BETWEEN_DOTTED_KEYS = re.compile(r"[=,\n]")


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Repr(reprlib.Repr):
    """As `repr`, but never long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxother = LONGEST
        self.maxlong = MOST_DIGITS + 10

    def repr_instance(self, x: object, level: int) -> str:
        """Without the address that Python gives by default, which means nothing to a reader."""
        return _ADDRESS.sub("", super().repr_instance(x, level))

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write integers of thousands of digits."""
        digits = int(x.bit_length() * math.log10(2)) + 1
        return super().repr_int(x, level) if digits < 4000 else f"an integer of {digits:,} digits"


_REPR = _Repr()


def shown(value: object) -> str:
    r"""The `repr` of a value in an error: one printable line of at most 200 characters.

    >>> shown("a\x1b"), shown([1, "b"]), len(shown("x" * 10**6)) <= LONGEST
    ("'a\\x1b'", "[1, 'b']", True)
    """
    return printable(_REPR.repr(value))


@contextlib.contextmanager
def ordinary_file(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """An ordinary file, open for reading, and its size in bytes; nothing is ever waited for.

    Nothing is read of a file whose size is 0: those of /proc that hold something all the same may wait.

    Raises:
        ValueError: a pipe or a device.
        OSError: it cannot be read.
    """
    _check_ordinary(os.stat(path), path)  # opening a device may do something
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        _check_ordinary(status, path)
        yield (file if status.st_size else io.BytesIO()), status.st_size


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The content of an ordinary file.

    Raises:
        ValueError: a pipe, a device, or more than `most` bytes.
        OSError: it cannot be read.
    """
    with ordinary_file(path) as (file, size):
        data = b"" if size > most else file.read(size + 1) or b""  # None where it answers "not now"
    if max(size, len(data)) > most:
        raise ValueError(f"must have at most {most:,} bytes, got {max(size, len(data)):,}")
    return data


def _check_ordinary(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "Is a directory", os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("cannot be read: it is no ordinary file")


def read_json(text: str | bytes, *, most_values: int = MOST_VALUES) -> Any:
    """What a JSON text holds: finite numbers, integers of at most 30 digits, at most 64 levels.

    Raises:
        ValueError: it is no JSON, or holds anything else; the message says what.
    """
    text = _decoded(text)
    if sum(map(text.count, ",[{")) > most_values:
        raise ValueError(f"holds more than {most_values:,} values")
    try:
        content = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError(f"is nested deeper than {DEEPEST} levels") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except _NotFinite:
        raise
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError(f"holds an integer of more than {MOST_DIGITS} digits") from None
    try:
        check_values(content)
    except _NotFinite:
        json.loads(text, parse_float=_finite)  # raises the same with the number as it stands in the text
        raise
    return content


def may_be_refused(text: bytes, most_values: int = MOST_VALUES) -> bool:
    """Whether `read_json` may find too many values, or an integer of too many digits, in a JSON text.

    Quick, for what is read in another way; of what `read_json` refuses, depth and finite numbers are left.
    """
    if len(text) > most_values and sum(map(text.count, (b",", b"[", b"{"))) > most_values:
        return True
    return _LONG in text.translate(_ALL_ZEROS)


_ALL_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * (MOST_DIGITS + 1)


def read_toml(text: str | bytes) -> dict[str, Any]:
    """What a TOML text holds: finite numbers, integers of at most 30 digits, at most 64 levels.

    Raises:
        ValueError: it is no TOML, or holds anything else; the message says what.
    """
    text = _decoded(text)
    # before it is read: a key of many parts takes time and memory that grow with their square
    if any(part.count(".") > DEEPEST for part in _BETWEEN_DOTTED_KEYS.split(text)):
        raise ValueError(f"is nested deeper than {DEEPEST} levels")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"is nested deeper than {DEEPEST} levels") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML: {printable(error)}") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError(f"holds an integer of more than {MOST_DIGITS} digits") from None
    check_values(content)
    return content


def _decoded(text: str | bytes) -> str:
    try:
        return text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8 text, got byte {error.object[error.start]:#04x}") from None


def check_values(content: Any) -> None:
    """Walk through lists and tables level by level; numbers are looked at on the way.

    Raises:
        ValueError: more than 64 levels, a number that is not finite, or an integer of more than 30 digits.
    """
    level, depth = [content], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"is nested deeper than {DEEPEST} levels")
        inner: list[Any] = []
        for one in level:
            kind = type(one)  # JSON and TOML give no subclasses
            if kind is float:
                if not math.isfinite(one):
                    _no_number(str(one))
            elif kind is dict:
                inner.extend(one.values())
            elif kind is list:
                inner.extend(one)
            elif kind is int:
                _check_digits(one)
        level = inner


def _check_digits(number: int) -> None:
    if number.bit_length() > 100 and abs(number) >= 10**MOST_DIGITS:
        raise ValueError(f"holds an integer of more than {MOST_DIGITS} digits")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(printable(text, 40))


class _NotFinite(ValueError):
    """A number that is infinite, too large for a float, or none."""


def _no_number(text: str) -> NoReturn:
    raise _NotFinite(f"holds {text}, which is no finite number")


FACTOR = "ANCHORLENS_COST_FACTOR"
"""Environment variable: so many times as much may be taken."""


def cost_factor() -> float:
    """How many times as much may be taken: what `FACTOR` says, or 1.

    Raises:
        ValueError: it says no number above 0.
    """
    text = os.environ.get(FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ValueError(f"{FACTOR} must be a number above 0, got {shown(text)}; set it to 1, or unset it")
    return factor
