"""The notebook views of a sweep and of a cell, and the report of a cell, which the page of maps shows too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from anchorlens.extras.sweep.cells import TROUBLES, Cell, SweepResult
from anchorlens.extras.sweep.diagram.axes import name_of_cell, value_label
from anchorlens.extras.sweep.diagram.layout import MOST_MAPS, phase_tables, symbols
from anchorlens.show import VERDICT_SHEETS, rendered, view
from anchorlens.views import html

TEMPLATES = Path(__file__).parent / "templates"

MOST_FAILED = 5
FIELDS = ("gamma", "weight_decay", "n_samples", "seed")
"""The configuration fields that identify a cell."""


@html.register
def sweep_html(result: SweepResult) -> str:
    """Return the counts by status, the phases over two axes, and failed runs, as HTML without a script.

    Args:
        result: a result of `sweep` or `open_sweep`, which may be unfinished.
    """
    maps = phase_tables(result) if result.axes else []
    failed = [cell for cell in result if cell.status in TROUBLES]
    return view(
        TEMPLATES / "sweep.html",
        total=f"{len(result):,}",
        axes=" × ".join(f"{name} ({len(values)})" for name, values in result.axes.items()),
        counts=result.counts,
        labels=result.phases,
        maps=maps[:MOST_MAPS],
        n_more=len(maps[MOST_MAPS:]),
        symbols=symbols(result),
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


def cell_report(
    cell: Cell,
    fields: Sequence[str],
    others: Sequence[str] = (),
    *,
    n_lines: int | None = None,
    report: str | None = None,
) -> str:
    """Return the report of a run as an HTML fragment.

    Args:
        cell: the run.
        fields: the configuration fields that identify the run.
        others: the fields to list in the report in addition to `fields`.
        n_lines: the number of lines of the log, with which the report has an element in which a script draws
            the training curve. With None, the report has no training curve.
        report: the address of the full report. With None, the report has the command that writes the full
            report.
    """
    return rendered(
        TEMPLATES / "cell.html",
        cell=cell,
        name=name_of_cell(cell, fields),
        facts=_facts(cell, others),
        command=shlex.join(["anchorlens", "classify", str(cell.path), "--report", f"{cell.id}.html"]),
        n_lines=n_lines,
        report=report,
    )


def _facts(cell: Cell, others: Sequence[str]) -> str:
    """List how the run ended, its steps and time, and the other fields that distinguish it."""
    ended = "not trained yet" if cell.status == "missing" else cell.status
    step, seconds, loss = (cell.numbers.get(name) for name in ("step", "seconds", "loss"))
    parts = [
        ended if step is None else f"{ended} after {step:,} steps",
        None if seconds is None else f"{seconds:,.0f} s",
        None if loss is None else f"loss {loss:.2g} nats",
        *(f"{name} {value_label(cell.fields.get(name))}" for name in others),
    ]
    return " · ".join(part for part in parts if part)
