"""Sequences and what they are made of: cells of (pair, key, position), and batches of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.anchor_functions import Pair
from anchorlens.configuration import documented

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor


@documented
@dataclass(frozen=True, eq=False)
class Cells:
    """Combinations of (pair, key, position): what a sequence is, apart from its noise."""

    pairs: Int[np.ndarray, "cell k"]
    """Anchor tokens in order."""
    keys: Int[np.ndarray, " cell"]
    """Key tokens."""
    positions: Int[np.ndarray, " cell"]
    """0-based position of the key; the anchors follow it."""

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[Pair, int, int]]:
        """Yield (pair, key, position) as plain Python values."""
        pairs = map(tuple, self.pairs.tolist())
        return zip(pairs, self.keys.tolist(), self.positions.tolist(), strict=True)


@documented
@dataclass(frozen=True, eq=False)
class AnchorBatch:
    """Sequences ready for a model, with what each of them asks."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids, int64."""
    targets: Int[Tensor, " batch"]
    """The answers trained on (train, ID) or the inferential answers (OOD), int64."""
    cells: Cells
    """Pair, key and position of every sequence."""

    def __len__(self) -> int:
        return len(self.cells)


def choose(
    rng: np.random.Generator,
    values: Int[np.ndarray, " value"],
    allowed: Bool[np.ndarray, "value column"],
    columns: np.ndarray,
) -> np.ndarray:
    """For each entry of `columns` a uniform choice among the values allowed in that column."""
    counts = allowed.sum(axis=0)
    order = np.argsort(~allowed, axis=0, kind="stable")  # allowed values first, ascending
    return values[order[rng.integers(0, counts[columns]), columns]]
