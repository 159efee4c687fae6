"""The gamma table of a model, as a notebook shows it."""

from __future__ import annotations

from anchorlens.models.gamma_init import GammaTable
from anchorlens.show.formats import number, short
from anchorlens.show.tables import Table, TableCell
from anchorlens.show.templating import view
from anchorlens.views import html

MOST_ROWS = 60
"""Matrices that are shown; the others are counted."""


@html.register
def gamma_table_html(table: GammaTable) -> str:
    """A row for each weight matrix."""
    rows = [
        (
            TableCell(short(" = ".join((row.name, *row.tied)), 80), code=True),
            " × ".join(map(str, row.shape)),
            row.part or "none",
            str(row.fan_in),
            *(number(value) for value in (row.std, row.measured_std, row.measured_gamma)),
        )
        for row in table.rows[:MOST_ROWS]
    ]
    columns = ("matrix", "shape", "part", "fan-in", "std", "measured std", "its gamma")
    return view(
        "gamma_table.html",
        table=table,
        shown=Table(columns, rows, numbers=range(3, len(columns))),
        n_more=len(table.rows[MOST_ROWS:]),
    )
