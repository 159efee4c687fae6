"""Sequences that are drawn when they are asked for: a few of many, without holding the others."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Cells

if TYPE_CHECKING:
    from jaxtyping import Int

DRAWN_AT_ONCE = 4_000_000
"""Tokens that are drawn at a time."""


class Drawing:
    """What `AnchorTask.sample` draws, by rows.

    All of it comes from one stream of numbers: first every position, then every pair, every key, and the
    noise. So a row is had by going through the whole stream; only what is asked for is kept.
    """

    def __init__(self, task: Any, n: int, split: str, rng: np.random.Generator) -> None:
        """`AnchorTask.drawing` makes it."""
        self._task, self._n, self._split, self._rng = task, n, split, rng

    def __len__(self) -> int:
        return self._n

    def all(self) -> AnchorBatch:
        """Every sequence; the generator is advanced."""
        task, split, rng = self._task, self._split, self._rng
        positions = task.draw_positions(self._n, split, rng)
        pairs = task.draw_pairs(self._n, split, rng)
        return task.sequences(Cells(pairs, task.draw_keys(positions, split, rng), positions), rng)

    def take(self, rows: Int[np.ndarray, " row"]) -> AnchorBatch:
        """Some of the sequences, in the order of `rows`; the generator stays where it was."""
        task, split = self._task, self._split
        of_positions, rng = copy.deepcopy(self._rng), copy.deepcopy(self._rng)
        for n, _ in self._chunks(rows):
            task.draw_positions(n, split, rng)
        of_pairs = copy.deepcopy(rng)
        for n, _ in self._chunks(rows):
            task.draw_pairs(n, split, rng)
        cells, noise = [], []
        for n, here in self._chunks(rows):
            positions = task.draw_positions(n, split, of_positions)
            keys = task.draw_keys(positions, split, rng)
            cells.append((task.draw_pairs(n, split, of_pairs)[here], keys[here], positions[here]))
        for n, here in self._chunks(rows):
            noise.append(task.noise(n, rng)[here])
        pairs, keys, positions = (np.concatenate(part) for part in zip(*cells, strict=True))
        batch = task.place(Cells(pairs, keys, positions), np.concatenate(noise))  # ascending
        return batch.take(np.argsort(np.argsort(rows, kind="stable"), kind="stable"))

    def _chunks(self, rows: Int[np.ndarray, " row"]) -> Iterator[tuple[int, Int[np.ndarray, " chosen"]]]:
        """Sequences of each chunk, and which of them are asked for, ascending."""
        ascending = np.sort(rows)
        at_once = max(1, DRAWN_AT_ONCE // self._task.seq_len)
        for start in range(0, self._n, at_once):
            n = min(at_once, self._n - start)
            first, last = np.searchsorted(ascending, (start, start + n))
            yield n, ascending[first:last] - start
