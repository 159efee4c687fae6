"""Printing: tables and lines for people, in which foreign text stays text, and JSON for programs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table
from rich.console import Console
from rich.text import Text

from anchorlens.show.formats import safe_lines
from anchorlens.show.tables import Table, text_of


class Terminal(Console):
    """A console that interprets nothing in a text: no markup, no `:smile:`, no control characters.

    A line break in a text breaks the line, so a name that may hold one must go through `printable` first.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a text for output; every text passes here, also those of table cells."""
        return super().render_str(safe_lines(text), **options)


_LONGEST_WORD = 13
"""A word up to this length is not broken in a narrow table: `commutativity`."""


def rich_table(table: Table, styles: Sequence[str] = ()) -> rich.table.Table:
    """A table for a terminal.

    Args:
        table: the table; emphasised rows are bold.
        styles: styles of the rows, if they have their own.
    """
    made = rich.table.Table(title=table.title or None)
    for i, column in enumerate(table.columns):
        words = [word for row in (table.columns, *table.rows) for word in str(row[i]).split()]
        least = min(_LONGEST_WORD, max(map(len, words), default=1))
        made.add_column(text_of(column), no_wrap=i in table.numbers, overflow="fold", min_width=least)
    styles = styles or ["bold" if stands_out else "" for stands_out in table.strong]
    for row, style in itertools.zip_longest(table.rows, styles):
        made.add_row(*map(text_of, row), style=style)
    return made


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on one line, and flush it."""
    print(json.dumps(content, allow_nan=False), flush=True)
