"""The notebook views of a sweep and of a cell."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from anchorlens.extras.sweep.cells import TROUBLES, Cell, SweepResult
from anchorlens.extras.sweep.diagram.axes import name_of_cell
from anchorlens.extras.sweep.diagram.cell_report import cell_report
from anchorlens.extras.sweep.diagram.text_maps import MOST_MAPS, SIGN_OF, SIGNS, text_maps
from anchorlens.show.templating import VERDICT_SHEETS, view
from anchorlens.views import html

TEMPLATES = Path(__file__).parent / "templates"

MOST_FAILED = 5
MOST_COLUMNS, MOST_ROWS = 16, 12
"""The largest number of columns and rows of a map of phases."""
FIELDS = ("gamma", "weight_decay", "n_samples", "seed")
"""The configuration fields that identify a cell."""


@html.register
def sweep_html(result: SweepResult) -> str:
    """Return the counts by status, the phases over two axes, and failed runs, as HTML without a script.

    Args:
        result: a result of `sweep` or `open_sweep`, which may be unfinished.
    """
    maps = text_maps(result) if result.axes else []
    failed = [cell for cell in result if cell.status in TROUBLES]
    return view(
        TEMPLATES / "sweep.html",
        total=f"{len(result):,}",
        axes=" × ".join(f"{name} ({len(values)})" for name, values in result.axes.items()),
        counts=result.counts,
        labels=result.phases,
        maps=maps[:MOST_MAPS],
        n_more=len(maps[MOST_MAPS:]),
        most_columns=MOST_COLUMNS,
        most_rows=MOST_ROWS,
        signs=SIGNS,
        sign_of=SIGN_OF,
        failed=[
            (f"{cell.id} {name_of_cell(cell, result.axes)}", f"{cell.status}: {cell.error}")
            for cell in failed[:MOST_FAILED]
        ],
        out=str(result.out),
    )


@html.register
def cell_html(cell: Cell) -> str:
    """Return the report of a run, as an HTML fragment without a script.

    Args:
        cell: a run of a sweep.
    """
    return view("view.html", VERDICT_SHEETS, content=Markup(cell_report(cell, FIELDS)))
