"""Results on stdout: tables for people, or one JSON object for programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from anchorlens.files.checkpoint import Checkpoint
from anchorlens.show.terminal.console import Terminal
from anchorlens.tasks.two_anchor.behaviour import Behaviour
from anchorlens.training.plan import Plan

_MOST_ANCHORS = 12
"""Anchors of a task whose pairs fit into a table; --json has all."""
SCHEMA_VERSION = 1
"""Of the JSON object; it grows by one when a key changes its meaning or goes."""


def print_json(path: Path, checkpoint: Checkpoint, behaviour: Behaviour) -> None:
    """Print exactly one JSON object, on one line."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "checkpoint": {
            "path": str(path),
            "step": checkpoint.step,
            "model": checkpoint.model.to_dict(),
            "task": checkpoint.task.to_dict(),
            "train": None if checkpoint.train is None else checkpoint.train.to_dict(),
            "metrics": dict(checkpoint.metrics),
            "versions": dict(checkpoint.versions),
        },
        "behaviour": behaviour.to_dict(),
    }
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def print_tables(checkpoint: Checkpoint, behaviour: Behaviour) -> None:
    """Print the task, the accuracies with their meaning, those of each pair, and the phase."""
    console = Terminal()
    console.print(checkpoint.task.describe())
    console.print(_accuracies(behaviour))
    if checkpoint.task.chain_length == 2 and len(checkpoint.task.anchors) <= _MOST_ANCHORS:
        console.print(_pairs(behaviour, list(checkpoint.task.anchors)))
    if "ood" in behaviour.deviations:
        console.print(f"OOD answers minus target: {behaviour.deviations_in_words('ood')}")
    phase = behaviour.phase
    console.print(f"{phase.label if phase.phase else 'undecided'}: {phase.reason}", style="bold")


def print_plan(plan: Plan, as_json: bool) -> None:
    """Print what a training will cost."""
    if as_json:
        content = {"schema_version": SCHEMA_VERSION, "plan": plan.to_dict()}
        sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
        return
    cost = plan.cost
    table = Table("what", "amount", "of which", title=f"nothing is trained; on {plan.device} it would take")
    table.add_row("models", f"{plan.n_models}", f"{plan.at_once} at a time")
    table.add_row("parameters", f"{cost.parameters:,}", "each")
    parts = (
        f"weights and optimizer {_megabytes(cost.state_bytes)}, data {_megabytes(cost.data_bytes)}, "
        f"activations {_megabytes(cost.activation_bytes)}"
    )
    table.add_row(
        "memory", f"{_megabytes(plan.memory_bytes)} of {_megabytes(plan.available_bytes)} free", parts
    )
    each, time = "not measured: the memory does not hold it", "unknown"
    if plan.seconds_per_update is not None and plan.seconds is not None:
        each, time = f"{1e3 * plan.seconds_per_update:.1f} ms each, measured", duration(plan.seconds)
    table.add_row("steps", f"{plan.steps:,}", each)
    flops = plan.n_models * plan.steps * cost.flops
    table.add_row("FLOPs of matrix products", f"{flops:.2e}", f"{cost.flops:.2e} a step and model")
    table.add_row("time", time, "with the evaluations, if nothing else runs")
    Terminal().print(table)


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.0f} MB"


def duration(seconds: float) -> str:
    """A time in words: `90 s`, `12 min 5 s`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return (
        f"{whole // 3600} h {whole % 3600 // 60} min"
        if whole >= 3600
        else f"{whole // 60} min {whole % 60} s"
    )


def _accuracies(behaviour: Behaviour) -> Table:
    table = Table("accuracy", "value", "± s.e.", "sequences", "meaning")
    for name, accuracy, meaning in behaviour.rows():
        table.add_row(
            name,
            f"{accuracy.value:.3f}",
            f"{accuracy.standard_error:.3f}",
            f"{accuracy.n_sequences:,}",
            meaning,
        )
    return table


def _pairs(behaviour: Behaviour, anchors: list[int]) -> Table:
    """Accuracy of every pair: first anchor down, second across, a star where it was never seen."""
    cells = {
        pair.pair: f"{pair.accuracy.value:.3f}{'*' if pair.split == 'ood' else ' '}"
        for pair in behaviour.pairs
    }
    table = Table("pair", *(f".., {anchor}" for anchor in anchors), title="accuracy by pair: ID (*: OOD)")
    for first in anchors:
        table.add_row(f"{first}, ..", *(cells.get((first, second), "-") for second in anchors))
    return table
