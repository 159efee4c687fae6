"""Trials of (pair, key, position), their splits, and the sequences made from them, at once or on demand."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anchorlens.configuration import check_choice, check_number, frozen_dataclass
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


Pair = tuple[int, ...]
"""The anchors of one sequence in the order they stand; two of them in the papers."""


@frozen_dataclass(eq=False)
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


@frozen_dataclass(eq=False, repr=False)
class AnchorBatch(TokenBatch):
    """Sequences for a model, with the trial of each sequence.

    The targets [batch] are the trained answers (train, ID) or the inferential answers (OOD).
    """

    trials: Trials
    """The pair, key and position of every sequence."""

    def take(self, rows: Int[np.ndarray, " row"]) -> AnchorBatch:
        """Return the sequences with the indices `rows`, in this order."""
        return AnchorBatch(self.tokens[rows], self.targets[rows], self.trials.take(rows))


Split = Literal["train", "id", "ood"]
SPLITS: tuple[Split, ...] = ("train", "id", "ood")


@frozen_dataclass(eq=False)
class Splits:
    """The splits of all combinations of pair, key x and position i into training, ID test and OOD test.

    A trained pair with key x at position i is in the training split if x and i differ modulo m, and otherwise
    in the ID test. The OOD test contains the unseen pairs.

    Raises:
        ValueError: If the training split or the ID test is empty.

    Source: arXiv 2405.05409 and 2501.08537.
    """

    keys: Int[np.ndarray, " key"]
    """Every key token x, ascending."""
    positions: Int[np.ndarray, " position"]
    """Every position i of the key."""
    modulus: int
    """The m of the rule."""
    seen: Sequence[Pair]
    """The pairs that are trained."""
    unseen: Sequence[Pair]
    """The pairs that are not trained."""

    def __post_init__(self) -> None:
        """Check that no split of the seen pairs is empty."""
        if not self.seen:
            raise ValueError(
                "unseen_pairs must leave at least one pair to train, got all pairs. Remove pairs from "
                "unseen_pairs"
            )
        for split in ("train", "id"):
            if not self.allowed(split).any():
                raise ValueError(
                    f"split_modulus must leave a key and a position in the {split} split for the keys "
                    f"{self.keys[0]}..{self.keys[-1]}, got {self.modulus}. Use a smaller split_modulus"
                )

    def pairs(self, split: Split) -> Sequence[Pair]:
        """Return the pairs of a split. An unknown split raises a ValueError."""
        check_choice("split", split, SPLITS)
        return self.unseen if split == "ood" else self.seen

    def allowed(self, split: Split) -> Bool[np.ndarray, "key position"]:
        """Return a boolean table, true where a split allows a key at a position."""
        if split == "ood":
            return np.ones((len(self.keys), len(self.positions)), dtype=bool)
        train = self.obeys_rule(self.positions)
        return train if split == "train" else ~train

    def size(self, split: Split) -> int:
        """Return the number of combinations (pair, key, position) in a split."""
        return len(self.pairs(split)) * int(np.count_nonzero(self.allowed(split)))

    def trials(self, split: Split, which: Int[np.ndarray, " trial"]) -> Trials:
        """Return the trials of a split with the indices `which`, counted pair by pair and key by key."""
        pairs = np.array(self.pairs(split), dtype=np.int64).reshape(-1, len(self.seen[0]))
        key, position = np.nonzero(self.allowed(split))
        pair, place = np.divmod(which, max(1, len(key)))
        return Trials(pairs[pair], self.keys[key[place]], self.positions[position[place]])

    def obeys_rule(self, positions: Int[np.ndarray, " pos"]) -> Bool[np.ndarray, "key pos"]:
        """Return a boolean table [key, position], true where key x mod m differs from position i mod m."""
        return (self.keys % self.modulus)[:, None] != positions % self.modulus

    def some_keys(
        self, rng: np.random.Generator, allowed: Bool[np.ndarray, "key column"], columns: np.ndarray
    ) -> np.ndarray:
        """Draw a key for each entry of `columns`, uniformly among the keys that `allowed` permits there."""
        counts = allowed.sum(axis=0)
        order = np.argsort(~allowed, axis=0, kind="stable")  # allowed keys first, ascending
        return self.keys[order[rng.integers(0, counts[columns]), columns]]


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
        self.task = task
        self.split = split
        self._n = n
        self._rng = rng
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
        keys = self.task.splits.some_keys(rng, self._allowed, positions)
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
            keys = task.splits.some_keys(rng, self._allowed, positions)
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
