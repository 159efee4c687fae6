"""Area under the ROC curve of one reading, with an interval from drawing tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

N_DRAWS = 2_000
LEAST_TASKS = 3
"""Tasks on either side below which there is no interval: too few to draw from."""
_SEED = 2501


class AucInterval(NamedTuple):
    """An AUC, 0..1, and its 95 % interval; None where there is nothing to compute it from."""

    auc: float | None
    low: float | None = None
    high: float | None = None


def auc_with_interval(
    values: Float[np.ndarray, " model"], is_yes: Bool[np.ndarray, " model"], tasks: Sequence[str]
) -> AucInterval:
    """How often a model of yes has a larger value than one of no, ties counting half.

    The interval draws tasks with replacement, every model of a task with it, since models of one task are not
    independent of each other; draws without a model of either side are left out. It is the same each time.

    Args:
        values: of the reading, finite.
        is_yes: for which models the answer is yes.
        tasks: of each model, by name.

    Returns:
        The AUC: .5 tells nothing, below .5 the models of yes have the smaller values. No AUC where a side is
        empty, and no interval where it has models of fewer than three tasks.

    >>> tasks = ["a", "b", "c", "a", "b", "c"]
    >>> auc_with_interval(np.array([0.1, 0.2, 0.3, 0.3, 0.8, 0.9]), np.arange(6) > 2, tasks).auc
    0.9444444444444444
    """
    yes, no = np.flatnonzero(is_yes), np.flatnonzero(~is_yes)
    if not len(yes) or not len(no):
        return AucInterval(None)
    difference = values[yes][:, None] - values[no][None]
    above = (np.sign(difference) + 1) / 2
    names, task = np.unique(np.asarray(tasks), return_inverse=True)
    if min(len(set(task[side])) for side in (yes, no)) < LEAST_TASKS:
        return AucInterval(float(above.mean()))
    random = np.random.default_rng(_SEED)
    times = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=N_DRAWS)
    of_yes, of_no = times[:, task[yes]], times[:, task[no]]
    n_compared = of_yes.sum(axis=1) * of_no.sum(axis=1)
    n_above = np.einsum("dy,yn,dn->d", of_yes, above, of_no, optimize=True)
    drawn = n_above[n_compared > 0] / n_compared[n_compared > 0]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return AucInterval(float(above.mean()), low, high)
