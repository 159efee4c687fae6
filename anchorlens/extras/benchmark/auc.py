"""The area under the ROC curve of one reading, with a bootstrap interval over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

N_DRAWS = 2_000
LEAST_TASKS = 3
"""The smallest number of tasks of either side for which an interval is computed."""
_SEED = 2501


class AucInterval(NamedTuple):
    """An AUC, 0..1, and its 95% interval, with `None` for a value that cannot be computed."""

    auc: float | None
    low: float | None = None
    high: float | None = None


def auc_with_interval(
    values: Float[np.ndarray, " model"], is_yes: Bool[np.ndarray, " model"], tasks: Sequence[str]
) -> AucInterval:
    """Compute the AUC of a reading on a question with the answers yes and no.

    The AUC is the probability that a model with the answer yes has a larger value than a model with the
    answer no. Ties count half. The interval is from a cluster bootstrap. Each draw takes tasks with
    replacement, and all models of each drawn task. Models of one task are not independent. The bootstrap
    omits draws in which every model has the same answer. The seed is fixed.

    Args:
        values: the finite value of the reading for each model.
        is_yes: a boolean mask of the models with the answer yes.
        tasks: the name of the task of each model.

    Returns:
        The AUC and its interval. An AUC of 0.5 is chance level. At an AUC below 0.5, models with the answer
        yes tend to have smaller values than models with the answer no. The AUC is `None` if all models have
        the same answer. The interval is `None` if the models of one answer belong to fewer than three tasks.

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
