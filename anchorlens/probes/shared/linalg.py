"""The weight matrices of a model, and the linear algebra that probes share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from anchorlens.configuration import check_number
from anchorlens.models.annotations import HookedTransformer

_MOST_ROWS_SQUARED = 4096
"""The largest number of rows for which `lag_cosines` computes the cosines of all rows."""

_ROWS = 1024
"""The number of vectors whose distances to all vectors memory holds at once."""


def cosine_matrix(a: Float[Tensor, "row feature"]) -> Float[Tensor, "row row"]:
    """Return the cosine of every row with every row, from -1 to 1, or 0 if a row is zero.

    >>> cosine_matrix(torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)).tolist()
    [[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    unit = functional.normalize(a, dim=-1)
    return (unit @ unit.mT).clamp(-1, 1)


def stable_rank_of(matrix: Float[Tensor, "row column"]) -> float:
    """Return the stable rank ||W||_F^2 / ||W||_2^2, or NaN for the zero matrix.

    The stable rank goes from 1 (rank one) to the smaller side of the matrix.

    >>> stable_rank_of(torch.diag(torch.tensor([2.0, 2.0, 1.0])))  # (4 + 4 + 1) / 4
    2.25
    """
    values = torch.linalg.svdvals(matrix.double())
    return (values / values.max()).square().sum().item()  # divided first, so that no square overflows


def gaussian_stable_rank(n_rows: int, n_columns: int) -> float:
    """Return the stable rank mn / (sqrt(m) + sqrt(n))^2 of a large Gaussian m x n matrix.

    >>> round(gaussian_stable_rank(640, 640))
    160
    """
    return n_rows * n_columns / (math.sqrt(n_rows) + math.sqrt(n_columns)) ** 2


def greedy_groups(similarity: Float[np.ndarray, "row row"], threshold: float) -> list[list[int]]:
    """Group rows greedily.

    The first row that has no group starts a group. Every row that has no group and is similar to the first
    row joins the group.

    Args:
        similarity: the symmetric matrix of similarities. A larger value means a larger similarity.
        threshold: the limit of the similarity. A row joins a group if the similarity to the first row is
            above the limit.

    Returns:
        The groups of row indices, in the order of their first rows.

    >>> greedy_groups(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]), 0.4)
    [[0, 2], [1]]
    """
    left, groups = np.arange(len(similarity)), []
    while len(left):
        alike = similarity[left[0], left] > threshold
        alike[0] = True
        groups.append(left[alike].tolist())
        left = left[~alike]
    return groups


def principal_components(
    rows: Float[Tensor, "row feature"], n_components: int
) -> tuple[Float[Tensor, "row component"], Float[Tensor, " eigenvalue"]]:
    """Return the principal coordinates of the centred rows, and the eigenvalues of the covariance.

    The sign of each axis is arbitrary, so the function makes the coordinate with the largest absolute value
    positive.

    Args:
        rows: the rows, at least two.
        n_components: the number of components, from 1 to the number of features.

    Returns:
        The coordinates, and the eigenvalues of the covariance (divided by n), largest first. For n rows in d
        dimensions, there are min(n - 1, d) eigenvalues. The other eigenvalues of the covariance are 0.
    """
    centred = rows.double() - rows.double().mean(dim=0)
    values, axes = torch.linalg.eigh(centred.mT @ centred / len(rows))
    coordinates = centred @ axes.flip(1)[:, :n_components]
    largest = coordinates.gather(0, coordinates.abs().argmax(dim=0, keepdim=True))
    n_values = min(len(rows) - 1, rows.shape[1])
    return coordinates * torch.where(largest < 0, -1.0, 1.0), values.flip(0)[:n_values].clamp(min=0)


def lag_cosines(rows: Float[Tensor, "row feature"], lags: range) -> Float[Tensor, " lag"]:
    """Return the mean cosine of two centred rows at distance k, from -1 to 1, for each lag k.

    Args:
        rows: the rows in order. The number of rows must be larger than the largest lag.
        lags: the lags k, each at least 1.
    """
    centred = rows.double() - rows.double().mean(dim=0)
    if len(rows) > _MOST_ROWS_SQUARED:  # a language vocabulary: all pairs would take gigabytes
        unit = functional.normalize(centred, dim=-1)
        pairs = [(unit[:-lag] * unit[lag:]).sum(dim=-1).clamp(-1, 1) for lag in lags]
    else:
        cosines = cosine_matrix(centred)
        pairs = [cosines.diagonal(offset=lag) for lag in lags]
    return torch.stack([cosines.mean() for cosines in pairs])


def cosines_between(
    a: Float[Tensor, "row feature"], b: Float[Tensor, "column feature"]
) -> Float[np.ndarray, "row column"]:
    """Return the cosine of every row of `a` with every row of `b`, from -1 to 1."""
    return cosine_matrix(torch.cat([a, b]))[: len(a), len(a) :].cpu().numpy()


def gap_between(cosines: Float[np.ndarray, "*cell"], same: Bool[np.ndarray, "*cell"]) -> float:
    """Return the mean cosine where `same` is true minus the mean cosine where `same` is false.

    The difference is NaN if `same` is true in all cells or in no cell.

    >>> gap_between(np.array([[1.0, 0.25]]), np.array([[True, False]]))
    0.75
    """
    if same.all() or not same.any():
        return math.nan
    return float(cosines[same].mean() - cosines[~same].mean())


def compare_groups(
    pairs: Iterable[tuple[Float[Tensor, "row feature"], Float[Tensor, "column feature"], np.ndarray]],
) -> dict[str, np.ndarray]:
    """Compute the cosines between the two groups of vectors of each pair, and their gap for a mask.

    Args:
        pairs: for each pair, the vectors of the rows, the vectors of the columns, and a boolean mask [row,
            column] that is true where row and column are expected to be similar.

    Returns:
        The raw `cosines` [pair, row, column], the `centred_cosines` after subtracting the mean vector of both
        groups, and the `gaps` and `centred_gaps` [pair] of both (see `gap_between`).
    """
    found = []
    for a, b, same in pairs:
        mean = torch.cat([a, b]).mean(dim=0)
        raw, centred = cosines_between(a, b), cosines_between(a - mean, b - mean)
        found.append((raw, centred, gap_between(raw, same), gap_between(centred, same)))
    names = ("cosines", "centred_cosines", "gaps", "centred_gaps")
    return dict(zip(names, map(np.array, zip(*found, strict=True)), strict=True))


def saturated(centred: Float[np.ndarray, "*cell"], apart: str) -> str:
    """Return why nearly all centred cosines between two groups are near -1, or an empty text if they are not.

    Args:
        centred: the cosines after subtracting the mean vector of both groups.
        apart: the cause, in words.
    """
    return f"; cells near -1: {apart}" if centred.size and centred.mean() < -0.8 else ""


def nearest_share(similarity: Float[np.ndarray, "row row"], labels: Int[np.ndarray, " row"]) -> float:
    """Return the proportion of rows whose most similar other row has the same label, from 0 to 1.

    >>> near = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> round(nearest_share(near, np.array([7, 7, 8])), 2)  # the third's nearest is the second
    0.67
    """
    others = np.where(np.eye(len(labels), dtype=bool), -np.inf, similarity)
    return float((labels[others.argmax(axis=1)] == labels).mean())


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


def weight_matrices(model: HookedTransformer) -> dict[str, Float[Tensor, "row column"]]:
    """Return a dict from parameter names to weight matrices, with inputs as rows.

    The matrices W_Q, W_K and W_V are [d_model, n_heads * d_head]. If heads share keys and values, W_K and W_V
    have n_key_value_heads heads. W_O is [n_heads * d_head, d_model]. The result omits a matrix that the model
    does not have, for example an MLP matrix of an attention-only model. The function converts matrices of
    half precision to float32.
    """
    matrices = {"embed.W_E": model.W_E}
    if hasattr(model, "pos_embed"):  # a model with rotary positions has none
        matrices["pos_embed.W_pos"] = model.pos_embed.W_pos
    for layer in range(model.cfg.n_layers):
        block = model.blocks[layer]
        for name in ("W_Q", "W_K", "W_V"):  # _W_K holds each shared key or value head once
            weight = getattr(block.attn, f"_{name}", None)
            weight = getattr(block.attn, name) if weight is None else weight
            matrices[f"blocks.{layer}.attn.{name}"] = merged_heads(weight)
        matrices[f"blocks.{layer}.attn.W_O"] = rearrange(block.attn.W_O, "h d m -> (h d) m")
        if not model.cfg.attn_only:
            for name, weight in _mlp_matrices(block.mlp):
                matrices[f"blocks.{layer}.mlp.{name}"] = weight
    matrices["unembed.W_U"] = model.W_U
    return {name: single(matrix.detach()) for name, matrix in matrices.items()}


def _mlp_matrices(mlp: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices of an MLP by HookedTransformer's names, or all matrices of a mixture of experts."""
    named = {name: getattr(mlp, name, None) for name in ("W_in", "W_gate", "W_out")}
    if named["W_in"] is None:
        named = {name: weight for name, weight in mlp.named_parameters() if weight.dim() == 2}
    yield from ((name, weight) for name, weight in named.items() if weight is not None)


def single(weight: Tensor) -> Tensor:
    """Convert a weight of half precision to float32, and return any other weight unchanged."""
    return weight.float() if weight.dtype in (torch.float16, torch.bfloat16) else weight


def short_name(name: str) -> str:
    """Shorten a parameter's name for plots.

    >>> short_name("blocks.0.attn.W_Q"), short_name("up2.0.weight")
    ('0.W_Q', 'up2.0')
    """
    return name.removeprefix("blocks.").removesuffix(".weight").replace(".attn", "").replace(".mlp", "")


def merged_heads(weight: Float[Tensor, "head_index d_model d_head"]) -> Float[Tensor, "d_model d_z"]:
    """Concatenate the heads of a weight to a matrix [d_model, n_heads * d_head]."""
    return rearrange(weight, "h m d -> m (h d)")
