"""Known label noise: a task in which some mappings are trained on wrong targets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.extras.audit.mappings import Mappings, mappings_of
from anchorlens.tasks import AnchorTask, Pair

if TYPE_CHECKING:
    from jaxtyping import Int

SHARE = 0.05
"""The fraction of the mappings that get a wrong target, to measure whether an audit finds them."""
LEAST, MOST = 20, 200
"""The smallest number of mappings that get a wrong target in a large enough dataset, and the largest."""
MOST_SHARE = 0.2
"""The largest fraction of a small dataset's mappings that get a wrong target."""


def corrupted(task: AnchorTask, share: float, *, seed: int = 0) -> AnchorTask:
    """Return the task with a fraction of its mappings trained on wrong targets.

    Args:
        task: any task. The result keeps the overrides of the task.
        share: the fraction, 0..1, of the rule-obeying mappings that get a wrong target. The mappings that get
            a wrong target are drawn at random.
        seed: the seed of the choice of mappings and of their wrong targets.

    Returns:
        A task whose overrides give each drawn mapping a wrong target. The wrong target is uniform over all
        number tokens except the correct target.

    Raises:
        ValueError: If `share` is outside 0..1, or the task has only one number token.

    >>> from anchorlens.extras.audit import mappings_of
    >>> mappings_of(corrupted(AnchorTask(), 0.05))
    Mappings(task: 1,120 mappings in 14 groups; 56 violate the rule)
    """
    check_number("share", share, minimum=0, maximum=1)
    if len(task.keys) < 2:
        raise ValueError("task must have at least two number tokens, got one token. Widen key_min..key_max")
    mappings, rng = mappings_of(task), np.random.default_rng(seed)
    assert mappings.violates is not None
    obeying = np.flatnonzero(~mappings.violates)
    ruled = dataclasses.replace(task, n_exceptions=0)  # the result adds its own exceptions again
    overrides: dict[Pair, Any] = dict(task.overrides or {})
    for row in np.sort(rng.choice(obeying, round(share * len(obeying)), replace=False)).tolist():
        pair, key = tuple(mappings.chains[row].tolist()), int(mappings.keys[row])
        table = overrides.get(pair)
        if type(table) is not dict:  # a dict is a table of ours; the task's own tables are immutable
            everywhere = task.product([pair], task.keys, np.zeros_like(task.keys))
            table = dict(zip(task.keys.tolist(), ruled.targets(everywhere).tolist(), strict=True))
            overrides[pair] = table
        table[key] = _another(rng, task.keys, int(mappings.targets[row]))
    return dataclasses.replace(task, overrides=overrides)


def planted(mappings: Mappings, seed: int) -> Mappings | None:
    """Plant wrong targets in a fraction `SHARE` of the mappings, or in a larger fraction of a small dataset.

    Args:
        mappings: the mappings of a dataset.
        seed: the seed of the choice of mappings and of their wrong targets. A wrong target is the target of
            another mapping.

    Returns:
        The mappings with the wrong targets in the field `planted`. The result is `None` if there are fewer
        than three mappings or only one target.

    >>> few = planted(mappings_of(AnchorTask()), seed=0)
    >>> int((few.planted >= 0).sum())
    56
    """
    n, rng = len(mappings), np.random.default_rng(seed)
    targets = mappings.task.targets(mappings.trials.take(mappings.first_trial))
    n_wrong = min(max(round(SHARE * n), LEAST), round(MOST_SHARE * n), MOST)
    if n_wrong == 0 or (targets == targets[0]).all():
        return None
    wrong = np.full(n, -1)
    for row in rng.choice(n, n_wrong, replace=False).tolist():
        others = targets[targets != targets[row]]
        wrong[row] = others[rng.integers(len(others))]
    return dataclasses.replace(mappings, planted=wrong)


def _another(rng: np.random.Generator, keys: Int[np.ndarray, " key"], target: int) -> int:
    """Draw a number token other than the target, uniformly."""
    at = target - int(keys[0])
    is_key = 0 <= at < len(keys)
    drawn = int(rng.integers(0, len(keys) - is_key))
    return int(keys[drawn + (is_key and drawn >= at)])
