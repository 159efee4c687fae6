"""The linear algebra that probes share, as functions of matrices."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

_MOST_ROWS_SQUARED = 4096
"""The largest number of rows for which `lag_cosines` computes the cosines of all rows."""


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

    The mask `same` must be true in at least one cell and false in at least one cell.

    >>> gap_between(np.array([[1.0, 0.25]]), np.array([[True, False]]))
    0.75
    """
    return float(cosines[same].mean() - cosines[~same].mean())


def compare_groups(
    a: Float[Tensor, "row feature"],
    b: Float[Tensor, "column feature"],
    same: Bool[np.ndarray, "row column"],
) -> tuple[Float[np.ndarray, "row column"], Float[np.ndarray, "row column"], float | None, float | None]:
    """Compute the cosines between two groups of vectors, and their gap for a mask (see `gap_between`).

    Args:
        a: the first group, whose vectors are the rows.
        b: the second group, whose vectors are the columns.
        same: a boolean mask [row, column] that is true where row and column are expected to be similar.

    Returns:
        The raw cosines, the cosines after subtracting the mean vector of both groups, and the gaps of raw and
        centred cosines (see `gap_between`). The gaps are `None` if `same` is true in all cells or in no cell.
    """
    mean = torch.cat([a, b]).mean(dim=0)
    raw, centred = cosines_between(a, b), cosines_between(a - mean, b - mean)
    if same.all() or not same.any():
        return raw, centred, None, None
    return raw, centred, gap_between(raw, same), gap_between(centred, same)


def nearest_share(similarity: Float[np.ndarray, "row row"], labels: Int[np.ndarray, " row"]) -> float:
    """Return the proportion of rows whose most similar other row has the same label, from 0 to 1.

    >>> near = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> round(nearest_share(near, np.array([7, 7, 8])), 2)  # the third's nearest is the second
    0.67
    """
    others = np.where(np.eye(len(labels), dtype=bool), -np.inf, similarity)
    return float((labels[others.argmax(axis=1)] == labels).mean())
