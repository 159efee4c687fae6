"""The lateness of each mapping, the outliers, and their agreement with the truth, from arrays alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Record

FIT = 0.5
"""The probability of the trained target from which a mapping counts as correct."""
NEVER = math.inf
"""The fit step of a mapping that is not fit at the end: unknown, and later than every step (censored)."""
FENCE = 3.0
"""The number of interquartile ranges above the third quartile from which a fit step is an outlier (Tukey's
outer fence)."""


def fit_steps(
    right: Float[np.ndarray, "*run evaluation mapping"],
    evaluation_steps: Sequence[int],
    threshold: float = FIT,
) -> Float[np.ndarray, "*run mapping"]:
    """Return the first evaluation step from which each mapping stays correct.

    Args:
        right: the probability of each mapping's correct answer at each evaluation, 0..1. NaN counts as wrong.
        evaluation_steps: the steps of the evaluations, ascending.
        threshold: the probability from which a mapping counts as correct, 0..1.

    Returns:
        The fit step of each mapping, or infinity (`NEVER`) for a mapping that is wrong at the last
        evaluation.

    >>> fit_steps(np.array([[0.9, 0.1], [0.2, 0.1], [0.6, 0.7], [0.8, 0.4]]), [10, 20, 30, 40]).tolist()
    [30.0, inf]
    """
    n_right_at_end = np.logical_and.accumulate(np.flip(right, axis=-2) >= threshold, axis=-2).sum(axis=-2)
    last_wrong = right.shape[-2] - n_right_at_end  # evaluations up to and including the last wrong one
    return np.append(np.asarray(evaluation_steps, dtype=float), NEVER)[last_wrong]


def ranks(values: Float[np.ndarray, " mapping"]) -> Float[np.ndarray, " mapping"]:
    """Return the rank of each value, scaled from 0 (smallest) to 1 (largest).

    Equal values share the mean of the ranks that they would occupy.

    >>> ranks(np.array([20.0, 10.0, NEVER, 20.0, NEVER])).tolist()
    [0.375, 0.0, 0.875, 0.375, 0.875]
    """
    ordered = np.sort(values)
    below, up_to = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return (below + up_to - 1) / 2 / max(1, len(values) - 1)


def lateness(steps: Float[np.ndarray, "run mapping"]) -> Float[np.ndarray, " mapping"]:
    """Compute each mapping's rank by fit step, 0..1, averaged over the runs.

    A mapping that is last in every run has rank 1.
    """
    return np.mean(list(map(ranks, steps)), axis=0)


def fence(steps: Float[np.ndarray, " mapping"], evaluation_steps: Sequence[int]) -> float | None:
    """Compute Tukey's outer fence of a run: a mapping whose fit step is after the fence is an outlier.

    The fence is Q3 + 3 (Q3 - Q1), where Q1 and Q3 are the first and third quartiles of the fit steps. The
    spread of the fit steps does not explain a fit step after the fence. The computation of the fence does not
    use the labels of violating mappings. The fence is valid if fewer than a quarter of the mappings are late.
    The exact fit step between two evaluations is unknown. The function therefore sets Q1 to at most the last
    evaluation step before Q3.

    Args:
        steps: the fit step of each mapping in one run, or infinity for a mapping that is never fit.
        evaluation_steps: the steps of the run's evaluations, ascending.

    Returns:
        The step of the fence, or `None` if Q3 is infinite. Q3 is infinite if about a quarter of the mappings
        or more are never fit.

    Source: the outer fences of Tukey (Exploratory Data Analysis, 1977).
    """
    low, high = np.quantile(steps, 0.25, method="lower"), np.quantile(steps, 0.75, method="higher")
    if not np.isfinite(high):
        return None
    before = [step for step in evaluation_steps if step < high]
    return float(high + FENCE * (high - min(low, before[-1] if before else 0)))


def stand_out(
    steps: Float[np.ndarray, "run mapping"], fences: Sequence[float | None], last: int
) -> Bool[np.ndarray, " mapping"]:
    """Flag each mapping whose fit step is after the fence in more than half of the runs that have a fence.

    If the fence of a run is beyond the last step, no mapping counts as late in this run. A longer run could
    still fit the remaining mappings before the fence.
    """
    limits = [math.inf if limit is not None and limit > last else limit for limit in fences]
    beyond = [fits > limit for fits, limit in zip(steps, limits, strict=True) if limit is not None]
    return np.mean(beyond, axis=0) > 0.5 if beyond else np.zeros(steps.shape[1], dtype=bool)


@frozen_dataclass()
class Score(Record):
    """The agreement of a ranking and its flags with the known violations of the rule."""

    n: int
    """The number of mappings (or groups) ranked."""
    n_violating: int
    """The number of mappings (or groups) that violate the rule."""
    auc: float | None
    """The area under the ROC curve, 0..1 (chance 0.5), which is the probability that a violating mapping is
    later than an obeying mapping. Ties count one half. The AUC is `None` if all or none of the mappings
    violate the rule."""
    auc_error: float | None
    """The standard error of the AUC (Hanley and McNeil) for independent mappings, which is 0 at an AUC of
    1."""
    n_flagged: int
    """The number of mappings (or groups) flagged."""
    precision: float | None
    """The fraction of the flagged mappings that violate the rule, 0..1, or `None` without flagged
    mappings."""
    recall: float | None
    """The fraction of the violating mappings that are flagged, 0..1, or `None` without violating mappings."""


def score(
    late: Float[np.ndarray, " mapping"],
    flagged: Bool[np.ndarray, " mapping"],
    violates: Bool[np.ndarray, " mapping"],
) -> Score:
    """Compute how well the lateness and the flags of mappings agree with the known violations of the rule.

    Source: the area under the ROC curve and its error (Hanley and McNeil, Radiology 143, 1982).
    """
    from sklearn.metrics import roc_auc_score

    n = len(late)
    n_bad = int(violates.sum())
    n_flagged = int(flagged.sum())
    hits = int((flagged & violates).sum())
    auc = error = None
    if 0 < n_bad < n:
        auc = float(roc_auc_score(violates, late))
        error = _auc_error(auc, n_bad, n - n_bad)
    precision, recall = (hits / of if of else None for of in (n_flagged, n_bad))
    return Score(n, n_bad, auc, error, n_flagged, precision, recall)


def _auc_error(auc: float, n_bad: int, n_good: int) -> float:
    both_bad, both_good = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (n_bad - 1) * (both_bad - auc**2) + (n_good - 1) * (both_good - auc**2)
    return math.sqrt(max(0.0, variance) / (n_bad * n_good))
