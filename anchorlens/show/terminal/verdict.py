"""The terminal output of verdicts, as a table in colour or as a JSON object for each verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from anchorlens.show.evidence import not_measured_in_words, odds_decreases, odds_increases, ranges_in_words
from anchorlens.show.tables import Table, trajectory_table, verdict_table
from anchorlens.show.terminal.console import FittedTable, Terminal, print_json
from anchorlens.show.words import UNCALIBRATED, number, trust_in_words, what_is_named
from anchorlens.tasks.shared.phases import LEARNT, MEMORISATION, SHORT, Phase
from anchorlens.texts import safe_text
from anchorlens.verdict.verdict import SCHEMA_VERSION, ProbeVerdict, Verdict

COLOURS = {
    **dict(zip((1, 2, 3), ("red", "yellow", "green"), strict=True)),
    **dict(zip(LEARNT, ("red", "yellow", "green"), strict=True)),
    **dict(zip(MEMORISATION, ("red", "green"), strict=True)),
}
"""The terminal colour of each phase or label."""


def print_unreadable_json(path: str, message: str) -> None:
    """Print the JSON object of an unreadable checkpoint, with `error` and without a phase."""
    nothing = {"schema_version": SCHEMA_VERSION, "phase": None, "commutative": None}
    print_json({**nothing, "error": message, "subject": {"path": path}})


def print_verdict(verdict: Verdict, verbose: bool = False) -> None:
    """Print one verdict, with the probe and behavioural verdicts, the evidence, and any trajectory.

    Args:
        verdict: the verdict.
        verbose: whether each reading has a line with the odds that it changes.
    """
    console = Terminal()
    by_probes, behaviour = verdict.by_probes, verdict.behaviour
    console.print(f"{_name(verdict)}: {verdict.headline}", style=_style(verdict.finding))
    if verdict.course:
        console.print(verdict.course, style="bold")
    shown = {metric.title for metric in behaviour.metrics if metric.in_tables}
    measured = ", ".join(f"{title} {value}" for title, value, _ in behaviour.rows() if title in shown)
    nothing = "readings that support no label" if by_probes.evidence else "no readings"
    alone = by_probes.phase.reason if by_probes.phase.is_named else nothing
    rows = [
        ("by the probes", by_probes.phase.label, by_probes.in_words() or alone),
        ("by behaviour", verdict.phase.label, measured),
    ]
    console.print(FittedTable(Table(("verdict", what_is_named(by_probes), "evidence"), rows)))
    console.print(verdict.explanation)
    if by_probes.phase.number is not None:
        console.print(trust_in_words())
    for line in _evidence_lines(by_probes, verbose):
        console.print(textwrap.fill(line, console.width, subsequent_indent=6 * " "))
    if verdict.trajectory:
        console.print(FittedTable(trajectory_table(verdict.trajectory)))
    for warning in verdict.warnings:
        console.print(f"note: {warning}")


def print_verdicts(verdicts: Sequence[Verdict], verbose: bool = False, *, as_one: bool = False) -> None:
    """Print several verdicts, with a row for each verdict, or the only one with its evidence."""
    if as_one:
        print_verdict(verdicts[0], verbose)
        return
    console = Terminal()
    labels = [_name(verdict) for verdict in verdicts]
    table = verdict_table(verdicts, labels, most=3)
    console.print(FittedTable(table, [_style(verdict.finding) for verdict in verdicts]))
    for label, verdict in zip(labels, verdicts, strict=True):
        if verdict.course:
            console.print(f"{label}: {verdict.course}")
        if verdict.agreement is not True:
            console.print(f"{label}: {verdict.explanation}")
        for warning in verdict.warnings:
            console.print(f"{label}: note: {warning}")


def _name(verdict: Verdict) -> str:
    """Return the name of a model on one line."""
    return safe_text(verdict.subject.name, None)


def _evidence_lines(by_probes: ProbeVerdict, verbose: bool) -> Iterator[str]:
    """Yield lines for each of the strongest readings, with the value, the ranges and, if asked, the odds."""
    readings = by_probes.evidence
    if not readings:
        return
    if by_probes.probabilities is None:
        yield UNCALIBRATED
        for reading in readings:
            about = f"{number(reading.value)}{ranges_in_words(reading)}, {reading.meaning}"
            yield f"  {reading.reading}: {about}"
        return
    counting = by_probes.strongest
    odds = " Odds: × raises, ÷ lowers." if verbose else ""
    yield f"Strongest readings.{odds} Ranges: the middle 80% of the calibration models."
    for reading in counting:
        yield f"  {reading.reading} {number(reading.value, '.2f')}: {reading.meaning}"
        if verbose:
            changes = (*odds_increases(reading), *odds_decreases(reading))
            yield "    odds: " + ", ".join(f"{_short(label)} {factor}" for label, factor in changes)
        ends = (f"{_short(label)} {low:.2f}..{high:.2f}" for label, (low, high) in reading.ranges.items())
        yield "    ranges: " + ", ".join(ends)
    yield f"  {len(readings) - len(counting)} weaker readings are in the output of --json and --report"
    if by_probes.not_measured:
        yield f"  {not_measured_in_words(by_probes)}"


def _short(label: str) -> str:
    return f"Phase {SHORT[label]}" if label in SHORT else label


def _style(phase: Phase) -> str:
    return f"bold {COLOURS.get(phase.number or phase.solution, 'dim')}"
