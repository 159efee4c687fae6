"""The gamma table of a model in a notebook."""

from __future__ import annotations

from pathlib import Path

from anchorlens.extras.gamma_init.gamma_init import GammaTable
from anchorlens.show import Table, TableCell, short, view
from anchorlens.views import html

TEMPLATE = Path(__file__).parent / "templates/gamma_table.html"

MOST_ROWS = 60
"""The largest number of matrices shown; the others are counted."""


@html.register
def gamma_table_html(table: GammaTable) -> str:
    """Render the table as HTML, with a row for each weight matrix."""
    texts = (row.texts() for row in table.rows[:MOST_ROWS])
    rows = [(TableCell(short(name, 80), code=True), *others) for name, *others in texts]
    shown = Table(table.columns, rows, numbers=range(3, len(table.columns)))
    return view(TEMPLATE, table=table, shown=shown, n_more=len(table.rows[MOST_ROWS:]))
