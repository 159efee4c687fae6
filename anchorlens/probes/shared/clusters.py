"""The separation and the t-SNE of the vectors of many sequences, which are grouped by anchors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from anchorlens.configuration import check_number
from anchorlens.probes.shared.linalg import principal_components
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

MOST_CHAINS = 32
"""The largest number of anchor pairs (chains) in one plot."""
_ROWS = 1024
"""The number of vectors whose distances to all vectors memory holds at once."""


def mirrored_pairs(task: AnchorTask, *, seen: bool = False) -> list[Pair]:
    """Return at most `MOST_CHAINS` pairs of different anchors, each followed by its reversed pair.

    Args:
        task: the task, which defines the pairs.
        seen: whether to keep only pairs whose two orders are both trained.

    >>> mirrored_pairs(AnchorTask())[:4]
    [(1, 2), (2, 1), (1, 3), (3, 1)]
    >>> len(mirrored_pairs(AnchorTask())), len(mirrored_pairs(AnchorTask(), seen=True))
    (12, 10)
    """
    groups = [pair for pair in task.pairs if pair < pair[::-1]]
    if seen:
        trained = set(task.seen_pairs)
        groups = [pair for pair in groups if {pair, pair[::-1]} <= trained]
    step = -(-len(groups) // (MOST_CHAINS // 2))
    return [order for pair in groups[:: max(step, 1)] for order in (pair, pair[::-1])]


def silhouette(
    vectors: Float[np.ndarray, "sequence feature"], labels: Int[np.ndarray, " sequence"]
) -> float | None:
    """Return the mean silhouette of the labels, from -1 to 1.

    The silhouette is 1 for tight clusters, and 0 without clusters. If the silhouette is below 0, vectors are
    nearer to vectors of other labels than to vectors of their own label. The result is `None` for fewer than
    two labels, or if every vector has a different label. If a label has only one vector, the silhouette of
    this vector counts as 0.
    """
    _, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if not 2 <= len(sizes) < len(label):
        return None
    points = torch.from_numpy(np.asarray(vectors - vectors.mean(axis=0), dtype=np.float64))
    of_label, n = torch.nn.functional.one_hot(torch.from_numpy(label)), torch.from_numpy(sizes)
    found = []
    for rows, own in zip(points.split(_ROWS), of_label.split(_ROWS), strict=True):
        sums = torch.cdist(rows, points) @ of_label.double()  # [row, label]
        others = n - own  # a vector is not compared with itself
        means = torch.where(others > 0, sums / others, 0.0)
        within = means[own.bool()]
        nearest = means.masked_fill(own.bool(), torch.inf).amin(dim=1)
        alone = (others == 0).any(dim=1)
        found.append(((nearest - within) / torch.maximum(within, nearest)).nan_to_num().masked_fill(alone, 0))
    return float(torch.cat(found).mean())


def mirror_merge(
    vectors: Float[np.ndarray, "sequence feature"],
    labels: Int[np.ndarray, " sequence"],
    mirror: Int[np.ndarray, " label"],
) -> float | None:
    """Return the mean distance of a pair to its reversed pair, relative to the mean of any two pairs.

    The distance of two pairs is the distance between their centroids. The ratio is 0 if each pair has the
    same centroid as its reversed pair. The ratio is about 1 if a pair and its reversed pair are as far apart
    as any two pairs. The result is `None` if all centroids are equal.

    Args:
        vectors: the vectors, at least one for each label.
        labels: the label of each vector, from 0 to n - 1.
        mirror: for each label, the label of the reversed pair.
    """
    centroids = np.stack([vectors[labels == label].mean(axis=0) for label in range(len(mirror))])
    distances = np.linalg.norm(centroids[:, None] - centroids[None], axis=-1)
    every = distances[~np.eye(len(mirror), dtype=bool)].mean()
    mirrored = distances[np.arange(len(mirror)), mirror]
    return float(mirrored[mirror != np.arange(len(mirror))].mean() / every) if every > 0 else None


def tsne(
    vectors: Float[np.ndarray, "sequence feature"], *, perplexity: float, seed: int
) -> Float[np.ndarray, "sequence 2"]:
    """Compute a two-dimensional t-SNE that starts from the first two principal components.

    Raises:
        ValueError: If the perplexity is not above 0 and below the number of vectors.
    """
    state = random.getstate()
    from sklearn.manifold import TSNE

    random.setstate(state)  # the first import of TSNE draws from Python's generator
    check_number("perplexity", perplexity, above=0)
    if perplexity >= len(vectors):
        raise ValueError(
            f"perplexity must be below the number of vectors, {len(vectors)}, got {perplexity}. Use more "
            "sequences, or a smaller perplexity"
        )
    start = principal_components(torch.from_numpy(vectors), min(2, vectors.shape[1]))[0].numpy()
    spread = start[:, 0].std()
    start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))  # adds a column if vectors have one number
    start = start / spread * 1e-4 if spread > 0 else np.random.default_rng(seed).normal(0, 1e-4, start.shape)
    first: Any = start.astype(np.float32)
    embedding = TSNE(perplexity=perplexity, init=first, random_state=seed, learning_rate="auto")
    return embedding.fit_transform(vectors.astype(np.float32)).astype(float)
