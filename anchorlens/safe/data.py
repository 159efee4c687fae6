"""Files read whole and bounded, and JSON and TOML read as plain data."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from typing import Any, BinaryIO

from anchorlens.safe.texts import safe_text

DEEPEST = 64
"""Lists and tables within each other that JSON or TOML may hold."""
MOST_DIGITS = 30
"""Digits that an integer in a text or a file may have."""
MOST_BYTES = 4 * 2**20
"""Bytes of a file that is read whole, where nothing else is said."""
MOST_VALUES = 1_000_000
"""Values in a JSON text, where nothing else is said: the smallest takes 30 times its bytes in memory."""

_DOTTED_KEY = re.compile(r"[=,\n]")
"""What stands between the dotted keys of a TOML text."""
_ALL_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * (MOST_DIGITS + 1)


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


def _check_ordinary(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "Is a directory", os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("cannot be read: it is no ordinary file")


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


def read_json(text: str | bytes, *, most_values: int = MOST_VALUES) -> Any:
    """What a JSON text holds: finite numbers, integers of at most 30 digits, at most 64 levels.

    Raises:
        ValueError: it is no JSON, or holds anything else; the message says what.
    """
    text = _decoded(text)
    if sum(map(text.count, ",[{")) > most_values:
        raise ValueError(f"holds more than {most_values:,} values")
    with _refusing():
        content = json.loads(text)
    try:
        check_values(content)
    except ValueError:
        json.loads(text, parse_float=_finite, parse_constant=_finite)  # shows the number as the text has it
        raise
    return content


def may_be_refused(text: bytes, most_values: int = MOST_VALUES) -> bool:
    """Whether `read_json` may find too many values, or an integer of too many digits, in a JSON text.

    Quick, for what is read in another way; of what `read_json` refuses, depth and finite numbers are left.
    """
    if len(text) > most_values and sum(map(text.count, (b",", b"[", b"{"))) > most_values:
        return True
    return _LONG in text.translate(_ALL_ZEROS)


def read_toml(text: str | bytes) -> dict[str, Any]:
    """What a TOML text holds: finite numbers, integers of at most 30 digits, at most 64 levels.

    Raises:
        ValueError: it is no TOML, or holds anything else; the message says what.
    """
    text = _decoded(text)
    # before it is read: a key of many parts takes time and memory that grow with their square
    if any(part.count(".") > DEEPEST for part in _DOTTED_KEY.split(text)):
        raise ValueError(_TOO_DEEP)
    with _refusing():
        content = tomllib.loads(text)
    check_values(content)
    return content


_TOO_DEEP = f"is nested deeper than {DEEPEST} levels"
_TOO_LONG = f"holds an integer of more than {MOST_DIGITS} digits"


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Say in our words what Python's readers find wrong."""
    try:
        yield
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML: {safe_text(error)}") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError(_TOO_LONG) from None


def _decoded(text: str | bytes) -> str:
    try:
        return text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8 text, got byte {error.object[error.start]:#04x}") from None


def check_values(content: object) -> None:
    """Walk through lists and tables level by level; numbers are looked at on the way.

    Raises:
        ValueError: more than 64 levels, a number that is not finite, or an integer of more than 30 digits.
    """
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            kind = type(value)  # JSON and TOML give no subclasses
            if kind is float:
                if not math.isfinite(value):
                    _finite(str(value))
            elif kind is dict:
                inner.extend(value.values())
            elif kind is list:
                inner.extend(value)
            elif kind is int and value.bit_length() > 100 and abs(value) >= 10**MOST_DIGITS:
                raise ValueError(_TOO_LONG)
        if not inner:
            return
        level = inner
    raise ValueError(_TOO_DEEP)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"holds {safe_text(text, 40)}, which is no finite number")
    return number
