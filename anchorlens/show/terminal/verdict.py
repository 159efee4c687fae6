"""Verdicts in the terminal, in colour where it is one: a table, or a JSON object for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from anchorlens.foreign import printable
from anchorlens.show.tables import Table, trajectory_table, verdict_table
from anchorlens.show.terminal.console import Terminal, print_json, rich_table
from anchorlens.tasks.shared.phases import SHORT, Phase
from anchorlens.verdict.mechanism import Evidence
from anchorlens.verdict.verdict import SCHEMA_VERSION, Verdict

COLOURS = {1: "red", 2: "yellow", 3: "green", None: "dim"}
"""Phase -> colour on a terminal."""


def print_unreadable_json(path: str, message: str) -> None:
    """Print the JSON object of a checkpoint that could not be read: no phase, and `error`."""
    nothing = {"schema_version": SCHEMA_VERSION, "phase": None, "commutative": None}
    print_json({**nothing, "error": message, "checkpoint": {"path": path}})


def print_verdict(verdict: Verdict) -> None:
    """Print one verdict: both phases, what they rest on, and the trajectory where there is one."""
    console = Terminal()
    phase, mechanism, behaviour = verdict.by_behaviour, verdict.mechanism, verdict.behaviour
    console.print(f"{_name(verdict)}: {phase.label}", style=_style(phase))
    rests = mechanism.phase.reason
    if mechanism.probabilities is not None and mechanism.phase.phase is not None:
        rests = ", ".join(f"{label} {value:.2f}" for label, value in mechanism.probabilities.items())
    shown = {metric.title for metric in behaviour.metrics if metric.in_tables}
    measured = ", ".join(f"{title} {value}" for title, value, _ in behaviour.rows() if title in shown)
    rows = [("behaviour", phase.label, measured), ("mechanism", mechanism.phase.label, rests)]
    console.print(rich_table(Table(("verdict", "phase", "rests on"), rows)))
    console.print(verdict.explanation)
    for line in _evidence_lines(mechanism.evidence):
        console.print(line)
    if verdict.trajectory:
        console.print(rich_table(trajectory_table(verdict.trajectory)))
    for warning in verdict.warnings:
        console.print(f"note: {warning}")


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print several verdicts, a row for each."""
    console = Terminal()
    table = verdict_table(verdicts, _paths(verdicts), most=3)
    console.print(rich_table(table, [_style(verdict.by_behaviour) for verdict in verdicts]))
    for verdict in verdicts:
        if verdict.agreement is not True:
            console.print(f"{_name(verdict)}: {verdict.explanation}")
        for warning in verdict.warnings:
            console.print(f"{_name(verdict)}: note: {warning}")


def _paths(verdicts: Sequence[Verdict]) -> list[str]:
    """Paths below the folder that all have in common."""
    paths = [Path(verdict.subject.path or verdict.subject.name) for verdict in verdicts]
    common = os.path.commonpath([path.absolute().parent for path in paths])
    return [printable(os.path.relpath(path.absolute(), common), None) for path in paths]


def _name(verdict: Verdict) -> str:
    """What a model is called, on one line."""
    return printable(verdict.subject.name, None)


def _evidence_lines(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Two lines for each reading that counts: value and vote, then where it lies in each phase."""
    if not evidence:
        return
    counting = [one for one in evidence if one.vote is not None]
    yield "Evidence: value, what it speaks for (nats); where the middle 80 % of a phase lie"
    for one in counting:
        value = "none" if one.value is None else f"{one.value:.2f}"
        yield f"  {one.reading}: {value} speaks for {SHORT.get(one.vote or '', one.vote)} ({one.weight:.1f})"
        ends = ((SHORT.get(name, name), low, high) for name, (low, high) in one.ranges.items())
        yield "    " + ", ".join(f"{name}: {low:.2f}..{high:.2f}" for name, low, high in ends)
    yield f"  {len(evidence) - len(counting)} more readings say nothing here; --json and --report list them"


def _style(phase: Phase) -> str:
    return f"bold {COLOURS[phase.phase]}"
