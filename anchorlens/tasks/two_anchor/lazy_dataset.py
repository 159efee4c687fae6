"""Sequences drawn on demand: a few of many, without holding the others in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Trials, choose
from anchorlens.tasks.two_anchor.splits import Split
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Int

DRAWN_AT_ONCE = 4_000_000
"""Tokens that are drawn at a time."""


class LazyDataset:
    """A data set that draws the sequences of `AnchorTask.sample` on demand.

    All sequences come from one stream of random numbers. The stream gives all positions, then all pairs, all
    keys, and the noise. `take` draws the stream to its end, but keeps only the values of the requested rows.
    """

    def __init__(self, task: Any, n: int, split: Split, rng: np.random.Generator) -> None:
        """Prepare the data set that `AnchorTask.lazy_sample` returns.

        Raises:
            ValueError: If `n` < 1, or the split is unknown or empty.
        """
        check_number("n", n, minimum=1, integer=True)
        self.task, self.split, self._n, self._rng = task, split, n, rng
        self._pairs = np.array(task.splits.pairs(split))
        if not len(self._pairs):
            raise ValueError(
                "the split must contain at least one pair of this task, got the empty split "
                f"{safe_repr(split)}. Use another split"
            )
        self._allowed = task.splits.allowed(split)  # [key, position]
        self._positions = task.positions[self._allowed.any(axis=0)]

    def __len__(self) -> int:
        return self._n

    def all(self) -> AnchorBatch:
        """Return every sequence, and advance the random generator."""
        rng = self._rng
        positions, pairs = _some(self._positions, self._n, rng), _some(self._pairs, self._n, rng)
        keys = choose(rng, self.task.keys, self._allowed, positions)
        return self.task.place(Trials(pairs, keys, positions), self.task.noise(self._n, rng))

    def take(self, rows: Int[np.ndarray, " row"]) -> AnchorBatch:
        """Return the sequences with the indices `rows`, in this order.

        The random generator does not advance.
        """
        task, trials = self.task, []
        of_positions, rng = copy.deepcopy(self._rng), copy.deepcopy(self._rng)
        for n, _ in self._chunks(rows):
            _some(self._positions, n, rng)
        of_pairs = copy.deepcopy(rng)
        for n, _ in self._chunks(rows):
            _some(self._pairs, n, rng)
        for n, here in self._chunks(rows):
            positions = _some(self._positions, n, of_positions)
            keys = choose(rng, task.keys, self._allowed, positions)
            trials.append((_some(self._pairs, n, of_pairs)[here], keys[here], positions[here]))
        noise = [task.noise(n, rng)[here] for n, here in self._chunks(rows)]
        pairs, keys, positions = (np.concatenate(part) for part in zip(*trials, strict=True))
        batch = task.place(Trials(pairs, keys, positions), np.concatenate(noise))  # ascending
        return batch.take(np.argsort(np.argsort(rows, kind="stable"), kind="stable"))

    def _chunks(self, rows: Int[np.ndarray, " row"]) -> Iterator[tuple[int, Int[np.ndarray, " chosen"]]]:
        """Yield the number of sequences in each chunk, and the indices that are in `rows`, ascending."""
        ascending = np.sort(rows)
        at_once = max(1, DRAWN_AT_ONCE // self.task.seq_len)
        for start in range(0, self._n, at_once):
            n = min(at_once, self._n - start)
            first, last = np.searchsorted(ascending, (start, start + n))
            yield n, ascending[first:last] - start


def _some(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return values[rng.integers(0, len(values), n)]
