"""Known label noise: a task in which some mappings are trained on wrong targets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.audit.mappings import mappings_of
from anchorlens.configuration import check_number
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from jaxtyping import Int


def corrupted(task: AnchorTask, share: float, *, seed: int = 0) -> AnchorTask:
    """The task with a share of its mappings trained on wrong targets, which an audit should find.

    Args:
        task: any task; its own overrides are kept.
        share: share of the mappings that obey the composition rule, 0..1; these mappings are drawn at random.
        seed: seed for the mappings and their targets.

    Returns:
        A task with overrides: the target of a drawn mapping is uniform over all other number tokens.

    Raises:
        ValueError: a share outside 0..1, or a task with a single number token.

    >>> from anchorlens.audit import mappings_of
    >>> mappings_of(corrupted(AnchorTask(), 0.05))
    Mappings(task: 1,120 mappings in 14 groups; 56 violate the rule)
    """
    check_number("share", share, minimum=0, maximum=1)
    if len(task.keys) < 2:
        raise ValueError("task must have two number tokens or more, got one; widen key_min..key_max")
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


def _another(rng: np.random.Generator, keys: Int[np.ndarray, " key"], target: int) -> int:
    """Draw a number token other than the target, uniformly."""
    at = target - int(keys[0])
    is_key = 0 <= at < len(keys)
    drawn = int(rng.integers(0, len(keys) - is_key))
    return int(keys[drawn + (is_key and drawn >= at)])
