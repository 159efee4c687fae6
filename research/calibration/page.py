"""The tables of calibration.md: each stands between two comments that name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table


def markdown(table: Table) -> str:
    """A table as Markdown, without its title."""
    console = Console(width=400)
    with console.capture() as captured:
        title, table.title = table.title, None
        console.print(table)
        table.title = title
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def update(page: Path, tables: Mapping[str, Table], mark: str = "table") -> None:
    """Replace every table of a page.

    Args:
        page: Markdown in which `<!-- MARK: NAME -->` and `<!-- end -->` stand around each.
        tables: by their names.
        mark: the word of the comments.

    Raises:
        ValueError: the page lacks one, or has another.
    """
    text = page.read_text()
    there = re.findall(f"<!-- {mark}: (.*) -->", text)
    if sorted(there) != sorted(tables):
        raise ValueError(f"{page} must have the tables {', '.join(tables)}, got {', '.join(there)}")
    for name, table in tables.items():
        text = re.sub(
            f"(<!-- {mark}: {re.escape(name)} -->\n).*?(<!-- end -->)",
            lambda found, table=table: f"{found[1]}\n{markdown(table)}\n\n{found[2]}",
            text,
            count=1,
            flags=re.DOTALL,
        )
    page.write_text(text)
