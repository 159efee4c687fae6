"""Where a question is recognised: places of a model, and the distance up to which it counts as seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from anchorlens.configuration import documented
from anchorlens.models import hooks

if TYPE_CHECKING:
    from sklearn.neighbors import NearestNeighbors

HOOKS = (hooks.ATTN_OUT, hooks.RESID_MID, hooks.RESID_POST)
"""What is read of the last position in each layer: what attention adds, and the residual stream behind it
and behind the block."""
N_FOLDS = 4
"""Parts of the trained pairs that are left out in turn, and of the sequences of the others that are asked."""
NOTHING = -1.0
"""The threshold of a place where looking up helps nowhere: no distance is as small."""


@documented
@dataclass(frozen=True)
class Place:
    """A place of a model, and how well questions are recognised there, on training data alone."""

    layer: int
    """Counted from 0."""
    hook: str
    """One of `HOOKS`, TransformerLens' name."""
    threshold: float
    """Largest Euclidean distance to the nearest stored activation at which a question counts as seen; -1
    where none does."""
    score: float
    """The mean of `recognised` and `left_alone`, 0..1: .5 is what looking up nothing gets."""
    recognised: float
    """Of held-out sequences that ask stored pairs: share that counts as seen and gets the right answer."""
    left_alone: float
    """Of sequences that ask pairs of which nothing is stored: share that does not count as seen."""


def neighbours(stored: Float[np.ndarray, "stored d"]) -> NearestNeighbors:
    """The index of stored activations; one neighbour, Euclidean distance."""
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=1).fit(stored)


def nearest(
    index: NearestNeighbors, asked: Float[np.ndarray, "asked d"]
) -> tuple[Float[np.ndarray, " asked"], Int[np.ndarray, " asked"]]:
    """Distance to the nearest stored activation, and its row."""
    distances, rows = index.kneighbors(asked)
    return distances[:, 0], rows[:, 0]


def folds(
    pairs: Int[np.ndarray, " sequence"], rng: np.random.Generator
) -> list[tuple[Bool[np.ndarray, " sequence"], Bool[np.ndarray, " sequence"]]]:
    """Which training sequences are asked as seen, and which as unseen, fold by fold; the others are stored.

    Each pair is left out of one fold, with all of its sequences, and asked there as unseen. Of the other
    pairs every fourth sequence, in random order, is asked as seen.

    Args:
        pairs: which pair each sequence asks.
        rng: of the choice.

    Returns:
        For each fold (asked as seen, asked as unseen).
    """
    distinct = rng.permutation(np.unique(pairs))
    n_folds = min(N_FOLDS, len(distinct))
    part_of_pair = dict(zip(distinct.tolist(), range(len(distinct)), strict=True))
    left_out = np.array([part_of_pair[pair] % n_folds for pair in pairs.tolist()])
    asked = rng.permutation(len(pairs)) % N_FOLDS
    return [((asked == fold) & (left_out != fold), left_out == fold) for fold in range(n_folds)]


def measured_place(
    layer: int,
    hook: str,
    activations: Float[np.ndarray, "sequence d"],
    answers: Int[np.ndarray, " sequence"],
    parts: Sequence[tuple[Bool[np.ndarray, " sequence"], Bool[np.ndarray, " sequence"]]],
) -> Place:
    """The threshold of a place, and how well questions are recognised with it.

    Args:
        layer: of the place.
        hook: of the place.
        activations: of training sequences there, at the last position.
        answers: what they were trained on.
        parts: as `folds` gives them.
    """
    seen_distances, is_right, unseen_distances = [], [], []
    for seen, unseen in parts:
        rows = np.flatnonzero(~seen & ~unseen)
        if not len(rows) or not seen.any():
            continue
        index = neighbours(activations[rows])
        distance, row = nearest(index, activations[seen])
        seen_distances.append(distance)
        is_right.append(answers[rows[row]] == answers[seen])
        unseen_distances.append(nearest(index, activations[unseen])[0])
    if not seen_distances:  # hardly any sequences: nothing is known of this place
        return Place(layer, hook, NOTHING, 0.5, 0.0, 1.0)
    threshold, recognised, left_alone = best_threshold(
        *(np.concatenate(one) for one in (seen_distances, is_right, unseen_distances))
    )
    return Place(layer, hook, threshold, (recognised + left_alone) / 2, recognised, left_alone)


def best_threshold(
    seen: Float[np.ndarray, " seen"],
    is_right: Bool[np.ndarray, " seen"],
    unseen: Float[np.ndarray, " unseen"],
) -> tuple[float, float, float]:
    """The distance up to which questions count as seen, the smallest of those that tell them apart best.

    Best is the largest mean of two shares: of the seen ones that are near and whose stored answer is right,
    and of the unseen ones that are not near.

    Args:
        seen: distances of questions of which the pair is stored.
        is_right: whether the stored answer is theirs.
        unseen: distances of questions of which it is not.

    Returns:
        Threshold, and the two shares at it; -1, 0 and 1 where looking up helps nowhere.

    >>> distances = np.array([1.0, 2.0, 4.0]), np.array([True, True, True]), np.array([3.0, 5.0])
    >>> best_threshold(*distances)  # 2: 2 / 3 and 1; 4: 1 and 1 / 2
    (2.0, 0.6666666666666666, 1.0)
    """
    found: Any = (NOTHING, 0.0, 1.0)
    order = np.argsort(seen, kind="stable")
    ascending, right = seen[order], np.cumsum(is_right[order]) / len(seen)
    last = np.append(ascending[1:] != ascending[:-1], True)  # of equal distances
    far = 1 - np.searchsorted(np.sort(unseen), ascending[last], side="right") / len(unseen)
    scores = right[last] + far
    best = int(np.argmax(scores))
    if scores[best] > 1:
        found = float(ascending[last][best]), float(right[last][best]), float(far[best])
    return found
