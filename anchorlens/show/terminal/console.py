"""The terminal output, which is tables and lines for people, and JSON for programs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from anchorlens.show.tables import Table, text_of
from anchorlens.show.words import parts, safe_lines


class Terminal(Console):
    """A console that does not interpret markup, `:smile:` or control characters in a text.

    A line break in a text breaks the line, so the caller must apply `safe_text` to a name that may contain a
    line break.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a text for output.

        The text may be the text of a table cell.
        """
        return super().render_str(safe_lines(text), **options)


_LONGEST_WORD = 13
"""The largest length of a word that a narrow table does not break, which is the length of `commutativity`."""
_BORDER = 3
"""The number of characters of the border and padding of each column. One more character closes the table."""


@dataclass(frozen=True)
class FittedTable:
    """A table that is at most as wide as the console, and keeps every column and every word.

    The table first wraps texts, and then breaks long words. Names of rows break after dots and underscores.
    Columns that do not fit are in another table below, which repeats the names of the rows.
    """

    table: Table
    """The table, whose emphasised rows are bold."""
    styles: Sequence[str] = ()
    """The styles of the rows. The sequence is empty if the rows have no styles."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[rich.table.Table]:
        """Yield the tables, from top to bottom."""
        rows = [[safe_lines(text_of(item)) for item in row] for row in (self.table.columns, *self.table.rows)]
        columns = [
            _ColumnWidths.of(texts, i == 0, i in self.table.numbers)
            for i, texts in enumerate(zip(*rows, strict=True))
        ]
        styles = self.styles or ["bold" if stands_out else "" for stands_out in self.table.strong]
        title = self.table.title or None
        for widths in _split(columns, options.max_width):
            made, title = rich.table.Table(title=title), None
            for i, width in widths.items():
                made.add_column(_broken(rows[0][i], width), width=width, overflow="fold")
            for row, style in itertools.zip_longest(rows[1:], styles):
                made.add_row(*(_broken(row[i], width) for i, width in widths.items()), style=style)
            yield made


class _ColumnWidths(NamedTuple):
    """The widths that a column may have."""

    natural: int
    """The width of the column if nothing wraps."""
    whole: int
    """The smallest width of the column if no word is broken."""
    broken: int
    """The smallest width of the column if long words are broken."""

    @classmethod
    def of(cls, texts: Sequence[str], names_rows: bool, holds_numbers: bool) -> _ColumnWidths:
        """Return the widths of a column of texts.

        The first text is the heading. Numbers do not wrap.
        """
        heading, *cells = texts
        lines = [line for text in cells for line in text.split("\n")]
        words = lines if holds_numbers else [word for line in lines for word in line.split()]
        least = max(1, _longest(heading.split()))
        whole = max(least, _longest(words))
        if holds_numbers:
            broken = whole
        elif names_rows:
            broken = max(least, _longest([part for word in words for part in parts(word)]))
        else:
            broken = max(least, min(whole, _LONGEST_WORD))
        return cls(max(cell_len(heading), _longest(lines)), whole, broken)


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _split(columns: Sequence[_ColumnWidths], room: int) -> Iterator[dict[int, int]]:
    """Split columns with their widths into tables that fit, each with the first column."""
    room -= 1 + _BORDER
    whole, broken = [column.whole for column in columns], [column.broken for column in columns]
    for least in (whole, [*whole[:1], *broken[1:]], broken):
        if sum(least) + _BORDER * (len(least) - 1) <= room:
            yield _widened(dict(enumerate(least)), columns, room)
            return
    beside = min(room // 2, max(broken[1:], default=0))
    name = max(1, min(whole[0], max(broken[0], room // 2), room - _BORDER - beside))
    group = {0: name}
    for i, least in enumerate(whole[1:], start=1):
        width = max(1, min(least, room - name - _BORDER))
        if len(group) > 1 and sum(group.values()) + width + _BORDER * len(group) > room:
            yield _widened(group, columns, room)
            group = {0: name}
        group[i] = width
    yield _widened(group, columns, room)


def _widened(least: dict[int, int], columns: Sequence[_ColumnWidths], room: int) -> dict[int, int]:
    """Widen narrow columns as far as the texts need the width and the table has space."""
    widest = room - _BORDER * (len(least) - 1)
    for most in range(widest, 0, -1):
        widths = {i: max(width, min(columns[i].natural, most)) for i, width in least.items()}
        if sum(widths.values()) <= widest:
            return widths
    return least


def _broken(text: str, width: int) -> str:
    """Break words longer than a width at the points where `parts` splits them."""

    def lines(word: re.Match[str]) -> str:
        done, line = "", ""
        for part in parts(word[0]):
            if line and cell_len(line + part) > width:
                done, line = f"{done}{line}\n", ""
            line += part
        return done + line

    return re.sub(r"\S+", lambda word: word[0] if cell_len(word[0]) <= width else lines(word), text)


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on one line, and flush the output."""
    print(json.dumps(content, allow_nan=False), flush=True)
