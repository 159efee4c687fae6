"""The fit: multinomial logistic regression on the readings of the zoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from anchorlens.verdict import LABELS, READINGS
from calibration.zoo import MOMENTS

UNDECIDED = "undecided"
STRENGTHS = tuple(float(c) for c in np.geomspace(0.01, 10, 13))
"""Values of C, the inverse of the regularisation, that cross-validation chooses from."""
COARSE_STRENGTHS = (0.3, 1.0, 3.0)
"""The same while readings are chosen."""
LEAST_GAIN = 0.003
"""Nats by which one more reading must lower the loss on seeds left out."""
LIMIT = 4.0
"""Standard deviations from the mean beyond which a reading counts no more."""
MISSING: Mapping[str, float] = {
    "information_flow.inferential_route of pooled anchors": 0.0,
    "information_flow.symmetric_route of pooled anchors": 0.0,
}
"""What a reading is taken for where a probe gives none: no route; for the others, the mean."""

Row = Mapping[str, Any]


def decided(rows: Sequence[Row]) -> list[Row]:
    """Those that have a phase by definition (borderline or not) and readings."""
    return [row for row in rows if row["behaviour"]["label"] in LABELS and row["readings"] is not None]


def fit_final(rows: Sequence[Row], without: Sequence[str] = ()) -> dict[str, Any]:
    """The mechanism verdict for trained models, as JSON data; without some of the readings."""
    rows = decided(rows)
    labels = [row["behaviour"]["label"] for row in rows]
    return fit([row["readings"] for row in rows], labels, seeds(rows), LABELS, without)


def fit_early(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """An early verdict for each moment, as JSON data; a run that ends in no phase is `undecided`."""
    fitted = {}
    for moment in map(str, MOMENTS):
        there = [row for row in rows if row["early"][moment]["readings"] is not None]
        labels = [final_label(row) for row in there]
        values = [row["early"][moment]["readings"] for row in there]
        fitted[moment] = fit(values, labels, seeds(there), (*LABELS, UNDECIDED))
    return fitted


def final_label(row: Row) -> str:
    """The label by definition of the end of a run, or `undecided`."""
    label = row["behaviour"]["label"]
    return label if label in LABELS else UNDECIDED


def seeds(rows: Sequence[Row]) -> list[int]:
    """Seed of each run."""
    return [row["seed"] for row in rows]


def fit(
    values: Sequence[Mapping[str, float | None]],
    labels: Sequence[str],
    groups: Sequence[int],
    order: Sequence[str],
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit one model; readings, regularisation and temperature are chosen by leaving out one seed at a time.

    A reading that is not chosen has coefficients of zero: it is shown, and says nothing.
    """
    names = [reading.name for reading in READINGS if reading.name not in without]
    table = np.array(
        [[np.nan if row[name] is None else row[name] for name in names] for row in values], float
    )
    missing = np.array([MISSING.get(name, np.nan) for name in names])
    missing = np.where(np.isnan(missing), np.ma.masked_invalid(table).mean(axis=0).filled(0), missing)
    table = np.where(np.isnan(table), missing, table)
    mean, scale = table.mean(axis=0), table.std(axis=0)
    scale = np.where(scale == 0, 1, scale)  # a reading that no checkpoint gives says nothing
    z = np.clip((table - mean) / scale, -LIMIT, LIMIT)
    y = np.array(labels)

    chosen = chosen_readings(z, y, groups)
    left_out = {c: left_out_logits(z[:, chosen], y, groups, c) for c in STRENGTHS}
    best = min(STRENGTHS, key=lambda c: nll(left_out[c], y))
    temperature = min(np.geomspace(0.5, 4, 61), key=lambda t: nll(left_out[best] / t, y))
    model = logistic(best).fit(z[:, chosen], y)
    present = [label for label in order if label in model.classes_]
    rows = [list(model.classes_).index(label) for label in present]
    coefficients = np.zeros((len(present), len(names)))
    coefficients[:, chosen] = model.coef_[rows] - model.coef_.mean(axis=0)
    intercept = model.intercept_[rows] - model.intercept_.mean()
    return {
        "labels": present,
        "n": {label: int((y == label).sum()) for label in present},
        "C": best,
        "temperature": round(float(temperature), 4),
        "limit": LIMIT,
        "intercept": {label: round(float(b), 4) for label, b in zip(present, intercept, strict=True)},
        "readings": {
            name: {
                "mean": round(float(mean[j]), 5),
                "scale": round(float(scale[j]), 5),
                "missing": round(float(missing[j]), 5),
                "coefficients": {
                    label: round(float(coefficients[i, j]), 4) for i, label in enumerate(present)
                },
                "ranges": {label: middle(table[y == label, j]) for label in present},
            }
            for j, name in enumerate(names)
        },
    }


def chosen_readings(z: np.ndarray, y: np.ndarray, groups: Sequence[int]) -> list[int]:
    """Forward selection: the reading that helps most, again and again, until none helps by `LEAST_GAIN`."""
    chosen: list[int] = []
    reached = np.inf
    while len(chosen) < z.shape[1]:
        others = [j for j in range(z.shape[1]) if j not in chosen]
        losses = {j: least_loss(z[:, [*chosen, j]], y, groups) for j in others}
        best = min(others, key=lambda j: losses[j])
        if reached - losses[best] < LEAST_GAIN:
            break
        chosen.append(best)
        reached = losses[best]
    return chosen


def least_loss(z: np.ndarray, y: np.ndarray, groups: Sequence[int]) -> float:
    """Loss on the seeds left out, with the best of a few regularisations."""
    return min(nll(left_out_logits(z, y, groups, c), y) for c in COARSE_STRENGTHS)


def logistic(c: float) -> LogisticRegression:
    """The model before it is fit."""
    return LogisticRegression(C=c, max_iter=5000)


def left_out_logits(z: np.ndarray, y: np.ndarray, groups: Sequence[int], c: float) -> np.ndarray:
    """[run, label] Log-odds of each run, labels in alphabetical order, from a fit without its seed."""
    split = LeaveOneGroupOut()
    return np.asarray(
        cross_val_predict(logistic(c), z, y, groups=groups, cv=split, method="predict_log_proba")
    )


def nll(logits: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log-likelihood, in nats."""
    _, index = np.unique(y, return_inverse=True)
    return float((logsumexp(logits, axis=1) - logits[np.arange(len(y)), index]).mean())


def middle(values: np.ndarray) -> list[float]:
    """Where the middle 80 % lie."""
    low, high = np.quantile(values, [0.1, 0.9])
    return [round(float(low), 3), round(float(high), 3)]
