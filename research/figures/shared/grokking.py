"""What the figures g1 to g3 share: their setting, the curves of a run, and the wait before it generalises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import spearmanr

from anchorlens import TrainResult
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.tasks.shared.phases import ID_THRESHOLD

SEEDS = (1, 2, 3)
"""Seed 0 was looked at before the claims were judged, and so is not among them."""
MODULUS = 59
SHARE = 0.5
NETWORK: Mapping[str, Any] = {
    "variant": "plain",
    "n_layers": 1,
    "n_heads": 4,
    "d_model": 64,
    "d_head": 16,
    "d_mlp": 256,
    "n_ctx": 3,
    "gamma": 0.5,
}
RECIPE: Mapping[str, Any] = {
    "steps": 4000,
    "lr": 1e-3,
    "lr_end_factor": 1.0,
    "warmup_steps": 10,
    "weight_decay": 1.0,
    "beta2": 0.98,
    "clip_norm": 0.0,
    "eval_every": 50,
    "log_every": 50,
    "n_checkpoints": 0,
}
"""All trained pairs in every update, at a constant rate; decay 1 unless an arm says otherwise."""


def setting(operation: Any = "add", modulus: int = MODULUS) -> dict[str, Any]:
    """The fields of a run: the task, the network that reads it, and the recipe."""
    task = ModularTask(modulus=modulus, operation=operation, trained_share=SHARE)
    n = {"n_samples": task.n_trained, "batch_size": task.n_trained}
    vocabulary = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    of_task = {"modulus": modulus, "operation": operation, "trained_share": SHARE}
    return {**of_task, **NETWORK, **vocabulary, **RECIPE, **n}


CURVES = ("train", "id", "mirrored", "unmirrored")
"""The accuracies that a row has at every evaluation, in this order behind the step."""
HALF = 0.5
"""Held-out accuracy at which a network is on its way to generalise."""


def curves(result: TrainResult) -> dict[str, Any]:
    """Of a run: its accuracies at every evaluation, and the steps at which it fits and generalises."""
    logged_as = {metric.name: metric.logged_as for metric in result.checkpoint.task.metrics}
    log = [line for line in result.log if line.get(logged_as["train"]) is not None]
    points = [[line["step"], *(line.get(logged_as[name]) for name in CURVES)] for line in log]
    fits, generalises = (passed_for_good(points, name) for name in ("train", "id"))
    return {"curves": points, "fits_at": fits, "generalises_at": generalises}


def passed_for_good(points: Sequence[Sequence[float]], name: str) -> float | None:
    """The first evaluation from which an accuracy is .90 or more in all; None where the last is not."""
    at, first = 1 + CURVES.index(name), None
    for point in points:
        if point[at] < ID_THRESHOLD:
            first = None
        elif first is None:
            first = point[0]
    return first


def wait(row: Mapping[str, Any]) -> float:
    """Updates between fitting and generalising; those of the whole run where it does not generalise."""
    last = row["curves"][-1][0]
    if row["fits_at"] is None or row["generalises_at"] is None:
        return float(last)
    return float(max(0, row["generalises_at"] - row["fits_at"]))


def correlation(values: Sequence[float], waits: Sequence[float]) -> float | None:
    """Spearman's correlation; None where all waits are the same."""
    if len(set(waits)) < 2:
        return None
    found: Any = spearmanr(values, waits)
    return float(found.statistic)


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
