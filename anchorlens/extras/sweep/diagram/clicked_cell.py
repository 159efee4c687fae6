"""The panel of the diagram page, which reports on a cell when it is clicked: its content, JSON-ready."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorlens.extras.sweep.cells import Cell
from anchorlens.extras.sweep.diagram.axes import name_of_cell, value_label
from anchorlens.show.evidence import is_drawn, lowered, raised, range_bar, ranges_in_words
from anchorlens.show.figures.training_curve import thinned, training_curve, training_traces
from anchorlens.show.formats import heading, number, safe_lines
from anchorlens.show.tables import accuracy_table, text_of
from anchorlens.show.words import AGREEMENT, beside
from anchorlens.tasks.shared.phases import COLOURS, LABELS, SHORT, Phase
from anchorlens.verdict.verdict import Evidence, Verdict

DIGITS = 3
"""Significant digits of the numbers of a training curve."""
MOST_POINTS = 1000
"""Largest number of points of a training curve; of more, every second, third, ... and the last are drawn."""


Readings = dict[tuple[str, str, str], int]
"""(reading, meaning, ranges in words) -> its index in the table that the page stores once."""


def shared_content(readings: Readings) -> dict[str, Any]:
    """Content that the reports of all runs share: the phases, the readings, the training curve's layout."""
    curve = json.loads(training_curve([]).update_layout(title_text="", margin_t=20).to_json() or "")
    phases = [{"label": label, "short": SHORT[label], "colour": colour} for label, colour in COLOURS.items()]
    table = [dict(zip(("reading", "meaning", "ranges"), shared, strict=True)) for shared in readings]
    return {"phases": phases, "readings": printed(table), "curve": curve["layout"]}


def run_content(
    cell: Cell,
    fields: Sequence[str],
    varying: Iterable[str],
    readings: Readings,
    *,
    n_lines: int = 0,
    report: str | None = None,
) -> dict[str, Any]:
    """The report of one run, JSON-ready: `clicked_cell.js` draws it.

    Args:
        cell: the cell to show.
        fields: the configuration fields that identify the cell.
        varying: all fields that vary in the sweep.
        readings: the table that the runs of the page share; the readings of this run are added.
        n_lines: number of lines of its log; the training curve is stored apart (`curve_traces`). 0 for none.
        report: address of its full report, if there is one.
    """
    stored = cell.content
    verdict = stored and stored.verdict
    content = {
        "id": cell.id,
        "name": name_of_cell(cell, fields),
        "facts": cell_facts(cell, [name for name in varying if name not in fields]),
        "error": cell.error,
        "details": cell.details,
        "verdict": verdict and _verdict_content(verdict, readings),
        "report": report,
        "command": None if report else command(cell),
        "weights": [(name, number(value)) for name, value in (stored.probes if stored else {}).items()],
        "n_lines": n_lines,
    }
    return printed(content)


def _verdict_content(verdict: Verdict, readings: Readings) -> dict[str, Any]:
    by_probes, table = verdict.by_probes, accuracy_table(verdict.behaviour)
    return {
        "behaviour": _phase_content(verdict.phase),
        "by_probes": _phase_content(by_probes.phase, beside(verdict)),
        "agreement": AGREEMENT[verdict.agreement]._asdict(),
        "explanation": verdict.explanation,
        "warnings": verdict.warnings,
        "accuracies": {
            "title": heading(table.title),
            "columns": [heading(text_of(column)) for column in table.columns[:-1]],
            "rows": table.rows,
        },
        "probabilities": _probabilities(verdict),
        "evidence": [_evidence_content(evidence, readings) for evidence in by_probes.evidence],
    }


def _phase_content(phase: Phase, note: str = "") -> dict[str, Any]:
    reasons = list(filter(None, (phase.reason if phase.is_named else "", note)))
    return {"label": phase.label, "colour": phase.colour, "gloss": phase.gloss, "reasons": reasons}


def _probabilities(verdict: Verdict) -> list[tuple[Any, ...]] | str:
    """Label, probability, and in words the probabilities by probes and by decoding; or why there are none."""
    by_probes = verdict.by_probes
    if by_probes.probabilities is None:
        return by_probes.phase.reason
    tables = [by_probes.probabilities, verdict.by_decoding.probabilities]
    return [
        (label, _rounded(share), *(number(table.get(label), ".1%") for table in tables if table is not None))
        for label, share in by_probes.probabilities.items()
    ]


def _evidence_content(evidence: Evidence, readings: Readings) -> tuple[Any, ...]:
    """Index of the reading, its value as text, its place among the phases, the odds it raises and lowers."""
    bar, shared = range_bar(evidence), (evidence.reading, evidence.meaning, ranges_in_words(evidence))
    bands = [bar.bands.get(label, (None, 0.0)) for label in LABELS]
    place = {"bands": bands, "at": bar.value} if is_drawn(evidence) else None
    which = readings.setdefault(shared, len(readings))
    return which, number(evidence.value), place, raised(evidence), lowered(evidence)


def printed(content: Any) -> Any:
    """The same content, with control characters in its texts escaped, except line breaks."""
    if isinstance(content, str):
        return safe_lines(content)
    if isinstance(content, Mapping):
        return {name: printed(value) for name, value in content.items()}
    return [printed(value) for value in content] if isinstance(content, list | tuple) else content


def command(cell: Cell) -> str | None:
    """The shell command that writes the full report of a cell; None for a cell that is not trained."""
    words = ["anchorlens", "classify", str(cell.path), "--report", f"{cell.id}.html"]
    return None if cell.path is None else shlex.join(words)


def curve_traces(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The traces of a training curve, rounded, with at most 1,000 points each; none without a log."""
    traces = []
    for trace in training_traces(log) if log else ():
        n_points = len(trace["x"])
        drawn = thinned(n_points, MOST_POINTS)
        traces.append({**trace, "x": trace["x"][drawn], "y": list(map(_rounded, trace["y"][drawn]))})
    return traces


def cell_facts(cell: Cell, others: Sequence[str]) -> str:
    """How the run ended, its steps and time, and the other fields that distinguish it from other cells."""
    ended = "not trained yet" if cell.status == "missing" else cell.status
    step, seconds, loss = (cell.numbers.get(name) for name in ("step", "seconds", "loss"))
    parts = [
        ended if step is None else f"{ended} after {step:,} steps",
        None if seconds is None else f"{seconds:,.0f} s",
        None if loss is None else f"loss {loss:.2g} nats",
        *(f"{name} {value_label(cell.fields[name])}" for name in others),
    ]
    return " · ".join(part for part in parts if part)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
