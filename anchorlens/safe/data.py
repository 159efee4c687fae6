"""Read whole files up to a size limit, and JSON and TOML as plain data."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from anchorlens.texts import safe_repr, safe_text

DEEPEST = 64
"""The largest depth of nested lists and tables in JSON or TOML."""
MOST_DIGITS = 30
"""The largest number of digits of an integer in a text or a file."""
MOST_BYTES = 4 * 2**20
"""The default limit on the bytes of a file that is read completely."""
MOST_VALUES = 1_000_000
"""The default limit on the values in a JSON text; the smallest takes 30 times its bytes in memory."""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The first bytes of a text in UTF-16, which PowerShell writes."""

_DOTTED_KEY = re.compile(r"[=,\n]")
"""The separators of the dotted keys in a TOML text."""
_ALL_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * (MOST_DIGITS + 1)


@contextlib.contextmanager
def ordinary_file(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open an ordinary file for reading without blocking, and return its size in bytes.

    A file of size 0 is not read. Files in /proc report size 0 but may have content and may block.

    Raises:
        ValueError: If the path is a pipe or a device.
        OSError: If the file cannot be read.
    """
    _check_ordinary(os.stat(path), path)  # before opening, which can act on a device
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        _check_ordinary(status, path)
        yield (file if status.st_size else io.BytesIO()), status.st_size


def check_inside(folder: str | os.PathLike[str], path: str | os.PathLike[str], *also: str) -> None:
    """Refuse a file whose path leads out of its folder through a link. The file may be missing.

    Args:
        folder: the folder that the user named, which may itself be a link.
        path: the path of a file in this folder or in a subfolder.
        also: the other folders, relative to `folder`, that links may lead to.

    Raises:
        ValueError: If a link leads to another folder.
    """
    below = Path(path).relative_to(folder).parts
    if not any(Path(folder, *below[: k + 1]).is_symlink() for k in range(len(below))):
        return
    file = os.path.realpath(path)
    allowed = (os.path.realpath(os.path.join(folder, other)) for other in (".", *also))
    if not any(os.path.commonpath([file, place]) == place for place in allowed):
        raise ValueError(
            f"the file must be in its folder, got {safe_repr(str(Path(*below)))}, which leads out of the "
            "folder through a link. Copy the file into the folder"
        )


def _check_ordinary(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "Is a directory", os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(
            "the path must name an ordinary file, got a pipe, a device or a socket. Give an ordinary file"
        )


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read the content of an ordinary file.

    Raises:
        ValueError: If the path is a pipe or a device, or the file has more than `most` bytes.
        OSError: If the file cannot be read.
    """
    with ordinary_file(path) as (file, size):
        data = b"" if size > most else file.read(size + 1) or b""  # None if reading would block
    if max(size, len(data)) > most:
        raise ValueError(f"the file must have at most {most:,} bytes, got {max(size, len(data)):,}")
    return data


def read_json(text: str | bytes, *, most_values: int = MOST_VALUES) -> Any:
    """Read a JSON text with finite numbers, integers of at most 30 digits, and at most 64 levels of nesting.

    Raises:
        ValueError: If the text is not JSON, or exceeds these limits. The message gives the reason.
    """
    text = decoded(text)
    if sum(map(text.count, ",[{")) > most_values:
        raise ValueError(
            f"the content must have at most {most_values:,} values, got more values. Use a smaller file"
        )
    with _refusing():
        content = json.loads(text)
    try:
        check_values(content)
    except ValueError:
        json.loads(text, parse_float=_finite, parse_constant=_finite)  # shows the number as the text has it
        raise
    return content


def may_be_refused(text: bytes, most_values: int = MOST_VALUES) -> bool:
    """Check whether a JSON text may have too many values or too long an integer for `read_json`.

    This quick check is for text that another reader parses. The check does not cover the depth of the text or
    numbers that are not finite.
    """
    if len(text) > most_values and sum(map(text.count, (b",", b"[", b"{"))) > most_values:
        return True
    return _LONG in text.translate(_ALL_ZEROS)


def read_toml(text: str | bytes) -> dict[str, Any]:
    """Read a TOML text with finite numbers, integers of at most 30 digits, and at most 64 levels of nesting.

    Raises:
        ValueError: If the text is not TOML, or exceeds these limits. The message gives the reason.
    """
    text = decoded(text)
    # before it is read: a key of many parts takes time and memory that grow with their square
    if any(part.count(".") > DEEPEST for part in _DOTTED_KEY.split(text)):
        raise ValueError(_TOO_DEEP)
    with _refusing():
        content = tomllib.loads(text)
    check_values(content)
    return content


_TOO_DEEP = f"the content must be nested at most {DEEPEST} levels deep, got more levels"
_TOO_LONG = f"the content must have integers of at most {MOST_DIGITS} digits, got more digits"


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn the errors of Python's readers into our own messages."""
    try:
        yield
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the content must be valid JSON, got an error in line {error.lineno}, column {error.colno}: "
            f"{error.msg}. Correct the JSON"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the content must be valid TOML, got an error: {safe_text(error)}") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise ValueError(_TOO_LONG) from None


def decoded(text: str | bytes) -> str:
    """Decode a text in UTF-8, or in UTF-16 with a byte order mark, and remove the mark.

    Raises:
        ValueError: If the bytes are in another encoding.

    >>> decoded("{}".encode("utf-8-sig")), decoded("{}".encode("utf-16"))
    ('{}', '{}')
    """
    try:
        if not isinstance(text, str):
            text = text.decode("utf-16" if text.startswith(UTF_16) else "utf-8")
        return text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the file must be UTF-8 text, got byte {error.object[error.start]:#04x}. Save the file as UTF-8"
        ) from None


def check_values(content: object) -> None:
    """Check the depth of nested lists and tables, and every number in the content, level by level.

    Raises:
        ValueError: If there are more than 64 levels, a number that is not finite, or an integer of more than
            30 digits.
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
        raise ValueError(f"the content must have only finite numbers, got {safe_text(text, 40)}. Correct it")
    return number
