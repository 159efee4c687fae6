"""The locations in a model at which seen inputs are recognised, and the distance threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from anchorlens.configuration import frozen_dataclass
from anchorlens.models import hooks

if TYPE_CHECKING:
    from sklearn.neighbors import NearestNeighbors

HOOKS = (hooks.ATTN_OUT, hooks.RESID_MID, hooks.RESID_POST)
"""The activations at the last position of each layer: the attention output, and the residual stream after
attention and after the block."""
N_FOLDS = 4
"""The number of folds, for the excluded pairs and for the tested sequences of the other pairs."""
NOTHING = -1.0
"""The threshold of a location where looking up never helps; no distance is that small."""


@frozen_dataclass()
class Place:
    """A location in a model, and how well seen inputs are recognised at this location in training data."""

    layer: int
    """The layer, counted from 0."""
    hook: str
    """One of `HOOKS`, by TransformerLens' name."""
    threshold: float
    """The largest Euclidean distance to the nearest stored activation at which an input counts as seen, or -1
    if no input counts as seen."""
    score: float
    """The mean of `recognised` and `left_alone`, 0..1, which is 0.5 without any look-up."""
    recognised: float
    """The fraction of held-out sequences of stored pairs that count as seen with the correct answer, 0..1."""
    left_alone: float
    """The fraction of sequences of pairs outside the store that do not count as seen, 0..1."""


def neighbours(stored: Float[np.ndarray, "stored d"]) -> NearestNeighbors:
    """Build a search index of stored activations for the nearest neighbour in Euclidean distance."""
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=1).fit(stored)


def nearest(
    index: NearestNeighbors, asked: Float[np.ndarray, "asked d"]
) -> tuple[Float[np.ndarray, " asked"], Int[np.ndarray, " asked"]]:
    """Return the distance of each input to the nearest stored activation, and the row of the activation."""
    distances, rows = index.kneighbors(asked)
    return distances[:, 0], rows[:, 0]


def folds(
    pairs: Int[np.ndarray, " sequence"], rng: np.random.Generator
) -> list[tuple[Bool[np.ndarray, " sequence"], Bool[np.ndarray, " sequence"]]]:
    """Choose the training sequences that each fold tests as seen and as unseen.

    For each pair, one fold excludes all sequences of the pair from the store, and tests these sequences as
    unseen. Each fold tests a random quarter of the sequences of all remaining pairs as seen. A fold stores
    all sequences that it does not test.

    Args:
        pairs: the index of the pair of each sequence.
        rng: the random generator.

    Returns:
        For each fold, a boolean mask of the sequences tested as seen, and a mask of the sequences tested as
        unseen.
    """
    distinct, pair = np.unique(pairs, return_inverse=True)
    n_folds = min(N_FOLDS, len(distinct))
    left_out = np.argsort(rng.permutation(len(distinct)))[pair] % n_folds
    asked = rng.permutation(len(pairs)) % N_FOLDS
    return [((asked == fold) & (left_out != fold), left_out == fold) for fold in range(n_folds)]


def measured_place(
    layer: int,
    hook: str,
    activations: Float[np.ndarray, "sequence d"],
    answers: Int[np.ndarray, " sequence"],
    parts: Sequence[tuple[Bool[np.ndarray, " sequence"], Bool[np.ndarray, " sequence"]]],
) -> Place:
    """Find the threshold of a location, and how well this threshold separates seen from unseen inputs.

    Args:
        layer: the layer of the location.
        hook: the hook of the location.
        activations: the activations of training sequences at this location, at the last position.
        answers: the trained targets of the sequences.
        parts: the folds, as `folds` returns them.
    """
    found = []
    for seen, unseen in parts:
        rows = np.flatnonzero(~seen & ~unseen)
        if not len(rows) or not seen.any():
            continue
        index = neighbours(activations[rows])
        distance, row = nearest(index, activations[seen])
        is_right = answers[rows[row]] == answers[seen]
        found.append((distance, is_right, nearest(index, activations[unseen])[0]))
    if not found:  # too few sequences to measure this place
        return Place(layer, hook, NOTHING, 0.5, 0.0, 1.0)
    threshold, recognised, left_alone = best_threshold(*map(np.concatenate, zip(*found, strict=True)))
    return Place(layer, hook, threshold, (recognised + left_alone) / 2, recognised, left_alone)


def best_threshold(
    seen: Float[np.ndarray, " seen"],
    is_right: Bool[np.ndarray, " seen"],
    unseen: Float[np.ndarray, " unseen"],
) -> tuple[float, float, float]:
    """Find the smallest distance threshold that best separates seen from unseen inputs.

    The threshold maximises the mean of two fractions. The first fraction counts the seen inputs that are
    within the threshold and whose stored answer is correct. The second fraction counts the unseen inputs
    outside the threshold.

    Args:
        seen: the distance to the nearest stored activation, for each input whose pair is stored.
        is_right: a boolean mask of the inputs of `seen` whose nearest stored answer is correct.
        unseen: the distance to the nearest stored activation, for each input whose pair is not stored.

    Returns:
        The threshold and the two fractions at this threshold. If a look-up never helps, the threshold is -1,
        and the fractions are 0 and 1.

    >>> distances = np.array([1.0, 2.0, 4.0]), np.array([True, True, True]), np.array([3.0, 5.0])
    >>> best_threshold(*distances)  # 2: 2 / 3 and 1; 4: 1 and 1 / 2
    (2.0, 0.6666666666666666, 1.0)
    """
    order = np.argsort(seen, kind="stable")
    ascending, right = seen[order], np.cumsum(is_right[order]) / len(seen)
    last = np.append(ascending[1:] != ascending[:-1], True)  # the last of equal distances
    far = 1 - np.searchsorted(np.sort(unseen), ascending[last], side="right") / len(unseen)
    scores = right[last] + far
    best = int(np.argmax(scores))
    if scores[best] <= 1:
        return NOTHING, 0.0, 1.0
    return float(ascending[last][best]), float(right[last][best]), float(far[best])
