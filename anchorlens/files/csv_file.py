"""Read CSV, TSV and JSON Lines as rows of numbers, with the names of their columns; all are read here."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.safe import UTF_16, decoded, read_json
from anchorlens.tasks.shared.batch import narrowed
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Int

TARGETS = ("target", "targets", "label", "labels", "answer", "answers", "y")
"""The names of a column of answers."""
_SEPARATORS = "\t;,"
"""The possible separators of values; the first one that occurs in the first line is used."""
_INDEX = ("", "unnamed: 0")
"""The names of an index column, which pandas writes by default."""
_LONGEST = 2**20
"""The largest number of characters in a line."""
_AT_ONCE = 2**17
"""The number of values that are read as int64 before they are narrowed."""
_DIGITS = 18
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_LETTER = re.compile(r"[^\W\d_]")
_QUOTED = re.compile(r'"[^"]*"')
_LARGEST_EXACT = 2**53
"""The largest float up to which floats represent every integer."""


_LONGEST_START = 4096
"""The number of bytes by which a text is recognised."""


def is_json_lines(data: bytes) -> bool:
    """Check whether a text begins with a JSON object without further objects in it, as JSON Lines do."""
    line = data[:_LONGEST_START].removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
    return line[:1] == b"{" and b"{" not in line[1:]


class CsvFile:
    """A CSV file whose header is read at once and whose rows are read on demand.

    Commas, semicolons, tabs or spaces separate the values. Values may be quoted, and integers may be written
    as floats (`23.0`). The text is UTF-8, or UTF-16 with a byte order mark. In JSON Lines, each line is an
    object with the same keys. The keys are the names of the columns, and a list `x` has the columns `x[0]`,
    `x[1]`, ...
    """

    fields: tuple[str, ...]
    """The values of the first line that is not blank, without spaces around them."""
    names: tuple[str, ...]
    """The column names in lower case, if the first line has a value with a letter that is not a number."""
    first_line: int
    """The number of the first line that is not blank, 1 or more."""

    def __init__(self, data: bytes) -> None:
        """Read the first line.

        Raises:
            ValueError: If the file is empty or not text, or its header has an index or the same name twice.
        """
        text = decoded(data)
        self._data = text.encode() if data.startswith(UTF_16) else data.removeprefix(codecs.BOM_UTF8)
        self._is_json = is_json_lines(self._data)
        self._separator = _separator(next((line for line in self._lines() if line.strip()), ""))
        first = next(self._records(), None)
        if first is None:
            raise ValueError("the file must have rows of numbers, got an empty file. Give another file")
        self.first_line, fields = first
        self.fields = tuple(field.removeprefix("#").strip() for field in fields)
        has_names = any(_LETTER.search(field) and not _is_number(field) for field in self.fields)
        names = tuple(field.lower() for field in self.fields)
        if names[0] in _INDEX and (has_names or count_up(names[1:])):
            raise ValueError(
                f"line {self.first_line}: the first column must have a name, got {safe_repr(fields[0])}. If "
                "the column is the index of pandas, write the file with to_csv(..., index=False)"
            )
        self.names = names if has_names or self._is_json else ()
        for name, times in Counter(self.names).most_common(1):
            if times > 1:
                raise ValueError(
                    f"line {self.first_line}: the names of the columns must be different, got "
                    f"{safe_repr(name)} twice. Remove one of the columns"
                )

    @property
    def n_lines(self) -> int:
        """The number of line ends, which is an upper limit on the number of rows after the first row."""
        return max(self._data.count(b"\n"), self._data.count(b"\r"))

    def rows(self) -> Int[np.ndarray, "row column"]:
        """All rows, in the narrowest integer type that holds the values.

        Raises:
            ValueError: If there is no row, or a value is not an integer. The message names the line and the
                column.
        """
        records = itertools.islice(self._records(), bool(self.names), None)
        rows = (self._integers(line, fields) for line, fields in records)
        blocks = []
        while block := list(itertools.islice(rows, _AT_ONCE // len(self.fields) + 1)):
            blocks.append(narrowed(np.array(block, dtype=np.int64)))
        if not blocks:
            raise ValueError("the file must have a row below its header, got none. Add the rows")
        return np.concatenate(blocks)

    def lines(self) -> list[int]:
        """Return the number of the line of each row."""
        return [n for n, _ in self._records()][bool(self.names) :]

    def _integers(self, line: int, fields: list[str]) -> list[int]:
        if len(fields) != len(self.fields):
            what = "the header" if self.names else "the first line"
            raise ValueError(
                f"line {line}: the row must have {len(self.fields)} values, as {what} has, got "
                f"{len(fields):,}. Correct the row, or write the file without an index"
            )
        digits = "".join(fields)
        if digits.isascii() and digits.isdecimal() and all(fields) and len(max(fields, key=len)) <= _DIGITS:
            return list(map(int, fields))
        values = []
        for column, field in enumerate(fields):
            if (value := _integer(field)) is None:
                name = self.fields[column][:40] if self.names else f"the value in column {column + 1}"
                got = f"{safe_repr(field[:40]) if field else 'an empty cell'}. Correct or remove the row"
                raise ValueError(f"line {line}: {name} must be an integer of up to 18 digits, got {got}")
            values.append(value)
        return values

    def _lines(self) -> Iterator[str]:
        """Yield the lines; a quoted value lies in one line."""
        for line, text in enumerate(io.TextIOWrapper(io.BytesIO(self._data), encoding="utf-8"), start=1):
            if len(text) > _LONGEST:
                raise ValueError(
                    f"line {line}: the row must have at most {_LONGEST:,} characters, got {len(text):,}. "
                    "Shorten the row"
                )
            if text.count('"') % 2:
                raise ValueError(
                    f"line {line}: a quoted value must end in its line, got no closing quotation mark. Add "
                    "the quotation mark"
                )
            yield text

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the values of each line that is not blank."""
        if self._is_json:
            yield from self._objects()
            return
        reader = csv.reader(self._lines(), delimiter=self._separator, skipinitialspace=True, strict=True)
        try:
            for values in reader:
                fields = [field.strip() for field in values]
                if any(fields):
                    yield reader.line_num, fields
        except csv.Error as error:
            raise ValueError(
                f"line {reader.line_num}: the row must be valid CSV, got an error: {error}. Correct the row"
            ) from None

    def _objects(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the names of the first object, and the values of each object."""
        names: list[str] = []
        for line, text in enumerate(self._lines(), start=1):
            if not text.strip():
                continue
            content = read_json(text)
            values = dict(_columns(content)) if isinstance(content, dict) else {}
            if not names:
                names = list(values)
                yield line, names
            if values.keys() != set(names):
                raise ValueError(
                    f"line {line}: the row must be an object with the keys and lengths of the first row, got "
                    f"{in_words(list(values)) or 'none'}. Correct the row"
                )
            yield line, [values[name] for name in names]


def _columns(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the columns of an object: a column for each entry of a list."""
    for name, value in content.items():
        entries = enumerate(value) if isinstance(value, list) else ()
        yield from ((f"{name}[{k}]", str(entry)) for k, entry in entries) if entries else [(name, str(value))]


def count_up(fields: tuple[str, ...]) -> bool:
    """Check whether values count up from 0 or from 1.

    The default column names of pandas count up from 0.
    """
    return any(fields == tuple(map(str, range(first, first + len(fields)))) for first in (0, 1))


def in_words(names: Sequence[str]) -> str:
    """Return the first few names, in quotation marks."""
    return ", ".join(map(safe_repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _separator(line: str) -> str:
    """Find the separator of the values of a line; a space separates only numbers (numpy.savetxt)."""
    unquoted = _QUOTED.sub("", line)
    spaced = all(map(_is_number, unquoted.split()))
    return next((mark for mark in _SEPARATORS if mark in unquoted), " " if spaced else ",")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _integer(field: str) -> int | None:
    """Parse an integer, also one that is written as an exact float; None for any other text."""
    if _INTEGER.fullmatch(field):
        return int(field)
    value = float(field) if _FLOAT.fullmatch(field) else 0.5
    return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else None
