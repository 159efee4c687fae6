"""What is printed: for people tables and lines in which foreign text stays text, for programs JSON."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table
from rich.console import Console
from rich.text import Text

from anchorlens.show.formats import safe_lines
from anchorlens.show.tables import Table, text_of


class Terminal(Console):
    """A console that obeys nothing within a text: no markup, no `:smile:`, no control characters.

    A line break within a text breaks the line; a name that may hold one goes through `printable` first.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text on its way out passes here, those of a table's cells too."""
        return super().render_str(safe_lines(text), **options)


def rich_table(table: Table, styles: Sequence[str] = ()) -> rich.table.Table:
    """A table for a terminal.

    Args:
        table: what it shows; rows that stand out are bold.
        styles: of its rows, where they have some of their own.
    """
    made = rich.table.Table(title=table.title or None)
    for i, column in enumerate(table.columns):
        made.add_column(text_of(column), no_wrap=i in table.numbers, overflow="fold")
    styles = styles or ["bold" if stands_out else "" for stands_out in table.strong]
    for row, style in itertools.zip_longest(table.rows, styles):
        made.add_row(*map(text_of, row), style=style)
    return made


def print_json(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object, on one line, and at once."""
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
    sys.stdout.flush()
