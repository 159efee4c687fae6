"""What the figures g1 to g3 share: their setting, the curves of a run, and the wait before it generalises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchorlens import TrainResult
from anchorlens.tasks.shared.phases import passed_at

MODULUS = 59
SETTING: Mapping[str, Any] = {
    "modulus": MODULUS,
    "eval_every": 100,
    "n_checkpoints": 0,
}
"""What the figures change in the preset `grokking-quick`."""
CURVES = ("train", "id", "mirrored", "unmirrored")
"""The accuracies that a row has at every evaluation, in this order behind the step."""
HALF = 0.5
"""Held-out accuracy at which a network is on its way to generalise."""


def curves(result: TrainResult) -> dict[str, Any]:
    """Of a run: its accuracies at every evaluation, and the steps at which it fits and generalises."""
    metrics = result.checkpoint.task.metrics
    logged_as = {metric.name: metric.logged_as for metric in metrics}
    log = [line for line in result.log if line.get(logged_as["train"]) is not None]
    points = [[line["step"], *(line.get(logged_as[name]) for name in CURVES)] for line in log]
    passed = passed_at(log, metrics)
    return {"curves": points, "fits_at": passed["train"], "generalises_at": passed["id"]}


def wait(row: Mapping[str, Any]) -> float:
    """Updates between fitting and generalising; those of the whole run where it does not generalise."""
    last = row["curves"][-1][0]
    if row["fits_at"] is None or row["generalises_at"] is None:
        return float(last)
    return float(max(0, row["generalises_at"] - row["fits_at"]))


def before_generalising(row: Mapping[str, Any]) -> Sequence[float]:
    """The last evaluation before held-out accuracy reaches .50, or the last of the run."""
    points = row["curves"]
    at = 1 + CURVES.index("id")
    first = next((place for place, point in enumerate(points) if point[at] >= HALF), len(points))
    return points[max(0, first - 1)]


def difference(row: Mapping[str, Any]) -> float:
    """Accuracy on pairs whose mirror was trained minus accuracy on the others, before it generalises."""
    point = before_generalising(row)
    return point[1 + CURVES.index("mirrored")] - point[1 + CURVES.index("unmirrored")]


OUTCOMES = {"comprehension": "circle", "grokking": "diamond", "memorisation": "square", "confusion": "x"}
"""The outcomes of Liu et al. (arXiv 2205.10343) -> marker."""
SOON = 1000
"""A run that generalises less than this many updates after it fits shows comprehension, else grokking."""


def outcome(row: Mapping[str, Any]) -> str:
    """The outcome of a run, by the steps at which it fits and generalises."""
    if row["fits_at"] is None:
        return "confusion"
    if row["generalises_at"] is None:
        return "memorisation"
    return "comprehension" if wait(row) < SOON else "grokking"
