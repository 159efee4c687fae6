"""Notebook views of probe results for one or several checkpoints, and the short view of one verdict."""

from __future__ import annotations

import numpy as np

from anchorlens.configuration import field_docs
from anchorlens.probes.along_run import Along
from anchorlens.probes.comparison import Comparison
from anchorlens.probes.shared.contract import ProbeResult
from anchorlens.show.tables import Table, TableCell
from anchorlens.show.templating import VERDICT_SHEETS, view
from anchorlens.show.words import number, short, ticks
from anchorlens.verdict.verdict import ProbeVerdict, Verdict
from anchorlens.views import html

MOST_CHECKPOINTS = 20
"""The largest number of checkpoints in the view of a comparison. The view states the number of other
checkpoints."""
MOST_NUMBERS = 40
"""The largest number of rows of readings along training. The method `table` writes all rows."""


@html.register
def probe_html(result: ProbeResult) -> str:
    """Return HTML with the headline, the readings, their meanings, the options, and the shapes of arrays."""
    docs, values = field_docs(type(result)), vars(result)
    rows = [
        (TableCell(name, code=True), short(in_view(value)), ticks(short(docs.get(name, ""))))
        for name, value in result.numbers().items()
    ]
    others = {name: value for name, value in values.items() if name not in result.readings}
    arrays = {name: value for name, value in others.items() if isinstance(value, np.ndarray)}
    return view(
        "probe.html",
        name=type(result).__name__,
        headline=result.headline(),
        readings=Table(("reading", "value", "meaning"), rows, numbers=(1,)),
        arrays=[(name, list(value.shape)) for name, value in arrays.items()],
        others=[(name, in_view(value)) for name, value in others.items() if name not in arrays],
    )


@html.register
def comparison_html(comparison: Comparison) -> str:
    """Return an HTML table with a row of readings for each checkpoint."""
    results = comparison.results
    readings = results[0].readings if results else ()
    rows = []
    for label, result in list(zip(comparison.labels, results, strict=True))[:MOST_CHECKPOINTS]:
        values = (short(in_view(result.numbers().get(name))) for name in readings)
        rows.append((short(label, 80), *values, short(result.headline())))
    columns = ("checkpoint", *(TableCell(name, code=True) for name in readings), "summary")
    return view(
        "comparison.html",
        name=type(results[0]).__name__ if results else "nothing",
        total=len(results),
        shown=Table(columns, rows, numbers=range(1, len(readings) + 1)),
    )


@html.register
def along_html(found: Along) -> str:
    """Return HTML with a row for each reading, which has its values at the first and the last checkpoint."""
    rows = []
    for name in (*found.readings, *found.metrics):
        values = [f"{number(row[name])} at {row['step']:,}" for row in found.rows if row[name] is not None]
        rows.append((TableCell(name, code=True), *(values[:1] + values[-1:] or ("-", "-"))))
    shown = Table(("reading", "first step", "last step"), rows[:MOST_NUMBERS], numbers=(1, 2))
    return view("along.html", n_rows=len(found.rows), shown=shown)


@html.register
def by_probes_html(by_probes: ProbeVerdict) -> str:
    """Return the probe verdict, with the probabilities and the evidence, as HTML without a script."""
    return view("by_probes.html", VERDICT_SHEETS, by_probes=by_probes)


@html.register
def verdict_html(verdict: Verdict) -> str:
    """Return the verdicts, their agreement, the probabilities and the evidence as an HTML fragment.

    The fragment has no script, loads nothing, and takes its dark or light colours from the surrounding page.

    Example:
        >>> IPython.display.HTML(verdict_html(classify("ckpt.pt")))  # doctest: +SKIP
    """
    return view("card.html", VERDICT_SHEETS, verdict=verdict)


def in_view(value: object) -> str:
    """Return a number, a string, or a sequence of numbers and strings as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {in_view(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_view, value))
    return number(value) if value is None or isinstance(value, float) else str(value)
