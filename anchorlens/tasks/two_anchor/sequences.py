"""Trials of (pair, key, position), and batches of sequences made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import documented
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.views import html

Pair = tuple[int, ...]
"""The anchors of one sequence in the order they stand; two of them in the papers."""

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


@documented
@dataclass(frozen=True, eq=False)
class Trials:
    """Combinations of a pair, a key and a position, each of which determines a sequence without its noise."""

    pairs: Int[np.ndarray, "trial k"]
    """The anchor tokens in order."""
    keys: Int[np.ndarray, " trial"]
    """The key tokens."""
    positions: Int[np.ndarray, " trial"]
    """The 0-based position of the key; the anchors follow the key."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Int[np.ndarray, " row"]) -> Trials:
        """Return the trials with the indices `rows`, in this order."""
        return Trials(self.pairs[rows], self.keys[rows], self.positions[rows])

    def __iter__(self) -> Iterator[tuple[Pair, int, int]]:
        """Yield (pair, key, position) as plain Python values."""
        pairs = map(tuple, self.pairs.tolist())
        return zip(pairs, self.keys.tolist(), self.positions.tolist(), strict=True)


@documented
@dataclass(frozen=True, eq=False, repr=False)
class AnchorBatch(TokenBatch):
    """Sequences for a model, with the trial of each sequence.

    The targets [batch] are the trained answers (train, ID) or the inferential answers (OOD).
    """

    trials: Trials
    """The pair, key and position of every sequence."""

    def take(self, rows: Int[np.ndarray, " row"]) -> AnchorBatch:
        """Return the sequences with the indices `rows`, in this order."""
        return AnchorBatch(self.tokens[rows], self.targets[rows], self.trials.take(rows))

    _repr_html_ = html


def placed(trials: Trials, noise: Int[np.ndarray, "batch pos"]) -> Int[np.ndarray, "batch pos"]:
    """Write the key and the anchors of `trials` into a copy of the noise tokens."""
    tokens, row = noise.astype(np.int64), np.arange(len(trials))
    tokens[row, trials.positions] = trials.keys
    for place, anchors in enumerate(trials.pairs.T, start=1):
        tokens[row, trials.positions + place] = anchors
    return tokens


_AROUND = 8
"""Tokens that are shown before the key and after the anchors."""


def marked(tokens: Sequence[int], key_position: int, n_anchors: int) -> list[tuple[Any, str]]:
    """List the tokens of a sequence as (token, role), where the role is `key`, `anchor` or `noise`.

    The list omits tokens that are more than 8 positions before the key or after the last anchor.

    >>> marked([50, 23, 1, 2, 60], key_position=1, n_anchors=2)
    [(50, 'noise'), (23, 'key'), (1, 'anchor'), (2, 'anchor'), (60, 'noise')]
    """
    end = key_position + 1 + n_anchors
    first, last = max(0, key_position - _AROUND), min(len(tokens), end + _AROUND)
    shown: list[tuple[Any, str]] = [
        (tokens[i], "key" if i == key_position else "anchor" if key_position < i < end else "noise")
        for i in range(first, last)
    ]
    before, after = [("…", "noise")] * (first > 0), [("…", "noise")] * (last < len(tokens))
    return [*before, *shown, *after]


def choose(
    rng: np.random.Generator,
    values: Int[np.ndarray, " value"],
    allowed: Bool[np.ndarray, "value column"],
    columns: np.ndarray,
) -> np.ndarray:
    """Draw a value for each entry of `columns`, uniformly among the values that `allowed` permits there."""
    counts = allowed.sum(axis=0)
    order = np.argsort(~allowed, axis=0, kind="stable")  # allowed values first, ascending
    return values[order[rng.integers(0, counts[columns]), columns]]
