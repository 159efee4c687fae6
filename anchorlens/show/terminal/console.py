"""What is printed for people: tables and lines on stdout, in which foreign text stays text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from anchorlens.foreign import printable


class Terminal(Console):
    """A console that obeys nothing within a text: no markup, no `:smile:`, no control characters.

    A line break within a text breaks the line; a name that may hold one goes through `printable` first.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text on its way out passes here, those of a table's cells too."""
        lines = text.split("\n")
        if not all(map(str.isprintable, lines)):
            lines = [line if line.isprintable() else printable(line, None) for line in lines]
        return super().render_str("\n".join(lines), **options)
