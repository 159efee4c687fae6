"""Memorised exceptions: single (key, pair) whose trained answer is random, the same for every model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.anchor_functions import Targets
from anchorlens.tasks.two_anchor.sequences import Pair

if TYPE_CHECKING:
    from jaxtyping import Int


class MemorisedException(NamedTuple):
    """A combination of key and pair that is trained on a random answer."""

    key: int
    """The key token."""
    pair: Pair
    """The anchor tokens in order."""
    answer: int
    """The trained token, which differs from the result of the pair's function."""


def put_exceptions(
    targets: Targets, n: int, pairs: Int[np.ndarray, "pair k"], keys: Int[np.ndarray, " key"]
) -> None:
    """Give each of `n` combinations (key, pair) a random wrong answer, uniform among the trained answers.

    All combinations (key, pair) have a fixed order, and each combination has a random answer. The exceptions
    are the first `n` combinations in this order. A larger `n` therefore keeps the exceptions of a smaller
    `n`, with the same answers. The order and the answers depend only on the trained data, not on the seed of
    a run.

    Args:
        targets: the targets of the task, changed in place.
        n: the number of exceptions, at least 1.
        pairs: the pairs that are trained.
        keys: the key tokens with a trained position, ascending.

    Raises:
        ValueError: If there are fewer combinations (key, pair) than `n`, or all trained answers are equal.
    """
    rows = targets.rows(pairs)
    possible, own = np.unique(targets.ruled[rows][:, keys - targets.keys[0]].ravel(), return_inverse=True)
    if n > len(own):
        raise ValueError(
            f"n_exceptions must be at most {len(own):,}, the number of combinations of a key and a trained "
            f"pair, got {n:,}. Use fewer exceptions"
        )
    if len(possible) < 2:
        raise ValueError(
            f"n_exceptions must be 0 if every trained answer is {possible[0]}, got {n:,}. Use anchors with "
            "other functions"
        )
    rng = generator(0, "exceptions")
    chosen = rng.permutation(len(own))[:n]
    drawn = rng.integers(0, len(possible) - 1, len(own))
    drawn += drawn >= own  # any but its own
    pair, key = np.divmod(chosen, len(keys))
    targets.except_for(rows[pair], keys[key], possible[drawn[chosen]])
