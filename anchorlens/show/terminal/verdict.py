"""Verdicts on stdout: a table for people (in colour on a terminal alone), or a JSON object for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from anchorlens.foreign import printable
from anchorlens.show.terminal.console import Terminal
from anchorlens.tasks.phases import Phase
from anchorlens.verdict.forecast import TrajectoryPoint
from anchorlens.verdict.mechanism import Evidence
from anchorlens.verdict.verdict import SCHEMA_VERSION, Verdict

COLOURS = {1: "red", 2: "yellow", 3: "green", None: "dim"}
"""Phase -> colour on a terminal."""


def print_verdict_json(verdict: Verdict) -> None:
    """Print one JSON object on one line."""
    _print_object(verdict.to_dict())


def print_unreadable_json(path: str, message: str) -> None:
    """Print the JSON object of a checkpoint that could not be read: no phase, and `error`."""
    _print_object(
        {
            "schema_version": SCHEMA_VERSION,
            "phase": None,
            "commutative": None,
            "error": message,
            "checkpoint": {"path": path},
        }
    )


def _print_object(content: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_verdict(verdict: Verdict) -> None:
    """Print one verdict: both phases, what they rest on, and the trajectory where there is one."""
    console = Terminal()
    behaviour = verdict.behaviour
    numbers = [("train", behaviour.train), ("ID", behaviour.id), ("OOD", behaviour.ood)]
    numbers += [("commutativity", behaviour.commutativity)]
    console.print(f"{_name(verdict)}: {verdict.by_behaviour.label}", style=_style(verdict.by_behaviour))
    shown = Table("verdict", "phase", "rests on", title=None)
    shown.add_row(
        "behaviour",
        verdict.by_behaviour.label,
        ", ".join(f"{name} {accuracy}" for name, accuracy in numbers if accuracy is not None),
    )
    mechanism = verdict.mechanism
    rests = mechanism.phase.reason
    if mechanism.probabilities is not None and mechanism.phase.phase is not None:
        rests = ", ".join(f"{label} {value:.2f}" for label, value in mechanism.probabilities.items())
    shown.add_row("mechanism", mechanism.phase.label, rests)
    console.print(shown)
    if verdict.by_behaviour.phase is None:
        console.print(verdict.by_behaviour.reason)
    console.print(verdict.explanation)
    if mechanism.evidence:
        for line in _evidence_lines(mechanism.evidence):
            console.print(line)
    if verdict.trajectory:
        console.print(_trajectory_table(verdict.trajectory))
    _print_warnings(console, verdict)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print several verdicts, a row for each."""
    console = Terminal()
    shown = Table(Column("checkpoint", overflow="fold"), "behaviour", "mechanism", "agree")
    for name in ("train", "ID", "OOD"):
        shown.add_column(name, no_wrap=True)
    for name, verdict in zip(_names(verdicts), verdicts, strict=True):
        behaviour = verdict.behaviour
        accuracies = (behaviour.train, behaviour.id, behaviour.ood)
        shown.add_row(
            name,
            verdict.by_behaviour.label,
            _with_probability(verdict),
            {True: "yes", False: "NO", None: "-"}[verdict.agreement],
            *("-" if accuracy is None else f"{accuracy.value:.3f}" for accuracy in accuracies),
            style=_style(verdict.by_behaviour),
        )
    console.print(shown)
    for verdict in verdicts:
        if verdict.agreement is not True:
            console.print(f"{_name(verdict)}: {verdict.explanation}")
        _print_warnings(console, verdict, _name(verdict))


def _names(verdicts: Sequence[Verdict]) -> list[str]:
    """Paths below the folder that all have in common."""
    paths = [Path(verdict.subject.path or verdict.subject.name) for verdict in verdicts]
    common = os.path.commonpath([path.absolute().parent for path in paths])
    return [printable(os.path.relpath(path.absolute(), common), None) for path in paths]


def _name(verdict: Verdict) -> str:
    """What a model is called, on one line."""
    return printable(verdict.subject.name, None)


def _evidence_lines(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Two lines for each reading that counts: value and vote, then where it lies in each phase."""
    counting = [one for one in evidence if one.vote is not None]
    yield "Evidence: value, what it speaks for (nats); where the middle 80 % of a phase lie"
    for one in counting:
        value = "none" if one.value is None else f"{one.value:.2f}"
        yield f"  {one.reading}: {value} speaks for {_short(one.vote or '')} ({one.weight:.1f})"
        ranges = (f"{_short(label)}: {low:.2f}..{high:.2f}" for label, (low, high) in one.ranges.items())
        yield f"    {', '.join(ranges)}"
    yield f"  {len(evidence) - len(counting)} more readings say nothing here; --json and --report list them"


def _trajectory_table(points: Sequence[TrajectoryPoint]) -> Table:
    """A row for each checkpoint of a run."""
    shown = Table("step", "of the run", "train", "ID", "OOD", "now", "forecast", title="phase against step")
    for one in points:
        expected = one.expected
        shown.add_row(
            f"{one.step}",
            f"{one.fraction:.1%}",
            f"{one.train:.2f}",
            f"{one.id:.2f}",
            "-" if one.ood is None else f"{one.ood:.2f}",
            one.now,
            "-" if expected is None or one.forecast is None else f"{expected} ({one.forecast[expected]:.2f})",
        )
    return shown


def _with_probability(verdict: Verdict) -> str:
    mechanism = verdict.mechanism
    if mechanism.phase.phase is None or mechanism.probabilities is None:
        return mechanism.phase.label
    return f"{mechanism.phase.label} ({max(mechanism.probabilities.values()):.2f})"


def _short(label: str) -> str:
    """`Phase 2 without commutativity` -> `2 without`."""
    return label.removeprefix("Phase ").removesuffix(" commutativity")


def _print_warnings(console: Terminal, verdict: Verdict, name: str | None = None) -> None:
    for warning in verdict.warnings:
        console.print(f"{'' if name is None else f'{name}: '}note: {warning}")


def _style(phase: Phase) -> str:
    return f"bold {COLOURS[phase.phase]}"
