"""Places of a model at which seen questions are recognised, and the distance threshold for it."""

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
"""Activations read at the last position of each layer: the attention output, and the residual stream after
attention and after the block."""
N_FOLDS = 4
"""Number of folds, for the pairs that are left out and for the sequences of the other pairs that are
asked."""
NOTHING = -1.0
"""The threshold of a place where looking up never helps; no distance is that small."""


@documented
@dataclass(frozen=True)
class Place:
    """A place of a model, and how well seen questions are recognised there, measured on training data."""

    layer: int
    """Layer, counted from 0."""
    hook: str
    """One of `HOOKS`, TransformerLens' name."""
    threshold: float
    """A question counts as seen if its Euclidean distance to the nearest stored activation is at most this;
    -1 if none counts as seen."""
    score: float
    """The mean of `recognised` and `left_alone`, 0..1; .5 without looking up anything."""
    recognised: float
    """Share of held-out sequences of stored pairs that count as seen and get the right answer, 0..1."""
    left_alone: float
    """Share of sequences of pairs that are not stored which do not count as seen, 0..1."""


def neighbours(stored: Float[np.ndarray, "stored d"]) -> NearestNeighbors:
    """A search index of stored activations for the nearest neighbour in Euclidean distance."""
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=1).fit(stored)


def nearest(
    index: NearestNeighbors, asked: Float[np.ndarray, "asked d"]
) -> tuple[Float[np.ndarray, " asked"], Int[np.ndarray, " asked"]]:
    """Distance of each question to the nearest stored activation, and the row of that activation."""
    distances, rows = index.kneighbors(asked)
    return distances[:, 0], rows[:, 0]


def folds(
    pairs: Int[np.ndarray, " sequence"], rng: np.random.Generator
) -> list[tuple[Bool[np.ndarray, " sequence"], Bool[np.ndarray, " sequence"]]]:
    """The training sequences asked as seen and as unseen questions in each fold; all others are stored.

    Each pair is left out in one fold, with all of its sequences, and asked there as unseen. A random quarter
    of the sequences of the other pairs is asked as seen.

    Args:
        pairs: index of the pair that each sequence asks.
        rng: random generator.

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
    """Find the threshold of a place, and measure how well questions are recognised with it.

    Args:
        layer: layer of the place.
        hook: hook of the place.
        activations: activations of training sequences there, at the last position.
        answers: their trained targets.
        parts: the folds, as `folds` returns them.
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
    if not seen_distances:  # too few sequences to measure this place
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
    """The smallest distance threshold that best separates seen from unseen questions.

    It maximises the mean of two shares: of seen questions that are within it and whose stored answer is
    right, and of unseen questions that are not within it.

    Args:
        seen: distances of questions whose pair is stored.
        is_right: whether the nearest stored answer is right for them.
        unseen: distances of questions whose pair is not stored.

    Returns:
        The threshold, and the two shares at it; -1, 0 and 1 where looking up never helps.

    >>> distances = np.array([1.0, 2.0, 4.0]), np.array([True, True, True]), np.array([3.0, 5.0])
    >>> best_threshold(*distances)  # 2: 2 / 3 and 1; 4: 1 and 1 / 2
    (2.0, 0.6666666666666666, 1.0)
    """
    found: Any = (NOTHING, 0.0, 1.0)
    order = np.argsort(seen, kind="stable")
    ascending, right = seen[order], np.cumsum(is_right[order]) / len(seen)
    last = np.append(ascending[1:] != ascending[:-1], True)  # the last of equal distances
    far = 1 - np.searchsorted(np.sort(unseen), ascending[last], side="right") / len(unseen)
    scores = right[last] + far
    best = int(np.argmax(scores))
    if scores[best] > 1:
        found = float(ascending[last][best]), float(right[last][best]), float(far[best])
    return found
