"""The distinct rows among rows of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int


def distinct_rows(
    rows: Int[np.ndarray, "row column"],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " row"]]:
    """Find the distinct rows in ascending order, like `np.unique(rows, axis=0)` but many times faster.

    Args:
        rows: the integers.

    Returns:
        The index of each distinct row's first occurrence, and each row's index among the distinct rows.

    >>> distinct_rows(np.array([[2, 1], [1, 5], [2, 1]]))
    (array([1, 0]), array([1, 0, 1]))
    """
    order = np.lexsort(rows.T[::-1])  # stable: among equal rows the first comes first
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.cumsum(is_new) - 1
    return order[is_new], place
