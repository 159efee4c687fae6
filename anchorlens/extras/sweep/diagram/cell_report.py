"""The report of one cell of a sweep, as a notebook and the page of maps show it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from anchorlens.extras.sweep.cells import Cell
from anchorlens.extras.sweep.diagram.axes import name_of_cell, value_label
from anchorlens.show.templating import rendered

TEMPLATES = Path(__file__).parents[1] / "templates"


def cell_report(
    cell: Cell,
    fields: Sequence[str],
    others: Sequence[str] = (),
    *,
    in_page: bool = False,
    n_lines: int = 0,
    report: str | None = None,
) -> str:
    """Return the report of a run as an HTML fragment.

    Args:
        cell: the run.
        fields: the configuration fields that identify the run.
        others: the fields to list in the report in addition to `fields`.
        in_page: whether to add an element in which a script draws the training curve.
        n_lines: the number of lines of the log. With 0, the report does not have a log.
        report: the address of the full report. With None, the report has the command that writes the full
            report.
    """
    return rendered(
        TEMPLATES / "cell.html",
        cell=cell,
        name=name_of_cell(cell, fields),
        facts=_facts(cell, others),
        stored=cell.content,
        command=_command(cell),
        in_page=in_page,
        n_lines=n_lines,
        report=report,
    )


def _command(cell: Cell) -> str | None:
    """Return the shell command for the full report of a cell; None for a cell that is not trained."""
    words = ["anchorlens", "classify", str(cell.path), "--report", f"{cell.id}.html"]
    return None if cell.path is None else shlex.join(words)


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
