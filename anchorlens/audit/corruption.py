"""Noise with a known place: a task some of whose mappings are trained on wrong targets."""

from __future__ import annotations

import dataclasses

import numpy as np

from anchorlens.audit.mappings import mappings_of
from anchorlens.configuration import check_number
from anchorlens.task import AnchorTask


def corrupted(task: AnchorTask, share: float, *, seed: int = 0) -> AnchorTask:
    """The task with a share of its mappings trained on wrong targets, which an audit should find.

    Args:
        task: any task; what it overrides already stays.
        share: of the mappings that obey the composition rule, 0..1; which ones is drawn at random.
        seed: of which mappings, and of their targets.

    Returns:
        A task with overrides: the target of a drawn mapping is any other number token, uniformly.

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
    overrides = dict(task.overrides or {})
    for row in np.sort(rng.choice(obeying, round(share * len(obeying)), replace=False)):
        pair, key = tuple(mappings.chains[row].tolist()), int(mappings.keys[row])
        table = overrides.get(pair)
        if not isinstance(table, dict):
            table = {x: task.target(x, pair) for x in task.keys.tolist()}
        wrong = rng.choice(task.keys[task.keys != mappings.targets[row]])
        overrides[pair] = {**table, key: int(wrong)}
    return dataclasses.replace(task, overrides=overrides)
