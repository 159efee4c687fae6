"""The terminal output, which is tables and lines for people, and JSON for programs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from anchorlens.show.tables import Table, text_of
from anchorlens.show.words import safe_lines


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


_BORDER = 3
"""The number of characters of the border and padding of each column. One more character closes the table."""


@dataclass(frozen=True)
class FittedTable:
    """A table that is at most as wide as the console, and keeps every column and every word.

    The table wraps texts, and breaks a word that is longer than half the console. Columns that do not fit are
    in another table below, which repeats the names of the rows.
    """

    table: Table
    """The table, whose emphasised rows are bold."""
    styles: Sequence[str] = ()
    """The styles of the rows. The sequence is empty if the rows have no styles."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[rich.table.Table]:
        """Yield the tables, from top to bottom."""
        rows = [[safe_lines(text_of(item)) for item in row] for row in (self.table.columns, *self.table.rows)]
        styles = self.styles or ["bold" if stands_out else "" for stands_out in self.table.strong]
        title = self.table.title or None
        for widths in self._widths(rows, options.max_width - 1):
            made, title = rich.table.Table(title=title), None
            for i, width in widths.items():
                made.add_column(rows[0][i], width=width, overflow="fold")
            for row, style in itertools.zip_longest(rows[1:], styles):
                made.add_row(*(row[i] for i in widths), style=style)
            yield made

    def _widths(self, rows: Sequence[Sequence[str]], room: int) -> Iterator[dict[int, int]]:
        """Split columns with their widths into tables that fit, each with the first column."""
        least, natural = [], []
        for i, texts in enumerate(zip(*rows, strict=True)):
            lines = [line for text in texts for line in text.split("\n")]
            whole = lines[1:] if i in self.table.numbers else " ".join(lines).split()
            longest = max(map(cell_len, (*texts[0].split(), *whole)), default=1)
            least.append(max(1, min(longest, room // 2 - _BORDER)))
            natural.append(max(map(cell_len, lines)))
        group = [0]
        for i in range(1, len(least)):
            if len(group) > 1 and sum(least[k] + _BORDER for k in (*group, i)) > room:
                yield _widened(group, least, natural, room)
                group = [0]
            group.append(i)
        yield _widened(group, least, natural, room)


def _widened(group: Sequence[int], least: Sequence[int], natural: Sequence[int], room: int) -> dict[int, int]:
    """Widen the columns of a table as far as the texts need the width and the table has space."""
    for most in range(room, 0, -1):
        widths = {i: max(least[i], min(natural[i], most)) for i in group}
        if sum(widths.values()) + _BORDER * len(group) <= room:
            return widths
    return {i: least[i] for i in group}


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on one line, and flush the output."""
    print(json.dumps(content, allow_nan=False), flush=True)
