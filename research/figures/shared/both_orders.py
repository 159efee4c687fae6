"""Addition whose held-out sums have no mirror in training: (a, b) and (b, a) are left out together.

In `addition` most sums of the random split, and of those held out for ID, have their mirror among the trained
ones, so that a model which has learnt that order does not matter is asked nothing new. The square has no such
help: it is its own mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.extras.shared.split_task import at_random
from anchorlens.randomness import generator
from anchorlens.tasks.registry import register_task


@register_task
@dataclass(frozen=True)
class AdditionBothOrders(AdditionTask):
    """`addition` with both orders of a pair in one split.

    The random split holds out a share of the unordered pairs, and in addition as many sums as asked for, or
    one fewer, of operands that differ.

    Example:
        >>> task = AdditionBothOrders(mode="reversed", split="random")
        >>> held_out = {tuple(pair) for pair in task.sums("id").tolist()}
        >>> all((b, a) in held_out for a, b in held_out)
        True
    """

    kind: ClassVar[str] = "addition_both_orders"

    @cached_property
    def _left_out(self) -> Bool[np.ndarray, " pair"]:
        """Whether each pair, a * (largest + 1) + b, is in the square or the random share."""
        if self.split != "random":
            return super()._left_out
        side = self.largest + 1
        a, b = np.triu_indices(side)
        chosen = at_random(len(a), self.random_share, self.split_seed)
        left_out = np.zeros((side, side), dtype=bool)
        left_out[a[chosen], b[chosen]] = left_out[b[chosen], a[chosen]] = True
        return left_out.ravel()

    @cached_property
    def splits(self) -> Mapping[str, Int[np.ndarray, "pair 2"]]:
        """`train`, `id` and for a square `ood` -> the operands (a, b) of every sum, ascending."""
        side = self.largest + 1
        rest = np.flatnonzero(~self._left_out & np.triu(np.ones((side, side), dtype=bool), k=1).ravel())
        below = generator(self.split_seed, "data", 2).choice(rest, self.n_held_out // 2, replace=False)
        a, b = np.divmod(below, side)
        return self._split(np.concatenate([below, b * side + a]))
