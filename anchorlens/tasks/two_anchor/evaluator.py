"""Run a model on every (pair, key, position) of a split, with several draws of noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int

from anchorlens.randomness import generator
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.base import LogitsModel
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.two_anchor.by_position import MOST_POSITIONS
from anchorlens.tasks.two_anchor.composite_function import CompositeFunction
from anchorlens.tasks.two_anchor.evaluation import PairAccuracy
from anchorlens.tasks.two_anchor.lazy_dataset import LazyDataset
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair, Trials
from anchorlens.tasks.two_anchor.splits import Split

_MOST_PERMUTED = 10_000_000
"""Largest training set from which sequences are chosen by a permutation of all."""


class Questions(Evaluator[CompositeFunction]):
    """An evaluator that collects the answers of one model at the last position, split by split."""

    def __init__(
        self,
        model: LogitsModel,
        task: CompositeFunction,
        seed: int,
        batch_size: int,
        max_trials: int,
        half: int | None = None,
    ) -> None:
        """Take the arguments of `evaluate`."""
        super().__init__(model, task, batch_size)
        self.seed, self.max_trials, self.half = seed, max_trials, half

    def whole(self, split: Split) -> bool:
        """Return whether the evaluation uses every trial (pair, key, position) of a split."""
        return self.task.n_trials(split) <= self.max_trials

    def trials(self, split: Split) -> Trials:
        """Return every trial (pair, key, position) of a split, or a random choice of `max_trials` trials.

        A random choice of unseen trials contains only trials that symmetry does not answer, if the split has
        any.
        """
        n, rng = self.task.n_trials(split), generator(self.seed, "evaluation", 1)
        if self.whole(split):
            rows = np.arange(n)
        elif split == "ood" and len(counting := self._not_by_symmetry(n)):
            rows = rng.choice(counting, min(self.max_trials, len(counting)), replace=False)
        else:
            rows = rng.choice(n, self.max_trials, replace=False)
        found = self.task.some_trials(split, rows)
        if self.half is None or split != "ood":
            return found
        return found.take(np.flatnonzero(found.keys % 2 == self.half))

    def _not_by_symmetry(self, n: int) -> Int[np.ndarray, " row"]:
        """Return the rows of `n` unseen trials that symmetry does not answer; no rows if it answers none."""
        n_positions = len(self.task.positions)
        counts = ~self.task.answered_by_symmetry(self.task.some_trials("ood", np.arange(0, n, n_positions)))
        return np.flatnonzero(np.repeat(counts, n_positions)) if not counts.all() else np.zeros(0, np.int64)

    def exceptions(self) -> tuple[Trials, bool]:
        """Return at most `max_trials` exceptions at trained positions, and whether the choice is complete."""
        trials = self.task.exception_trials
        if len(trials) <= self.max_trials:
            return trials, True
        rng = generator(self.seed, "evaluation", 3)
        return trials.take(rng.choice(len(trials), self.max_trials, replace=False)), False

    def ask(self, trials: Trials, n_noise: int) -> Int[np.ndarray, "trial draw"]:
        """Return the model's answers to every trial (pair, key, position) with `n_noise` draws of noise.

        The noise depends only on the seed and the number of trials. Pairs and their reversed pairs with the
        same keys and positions get the same noise. Their answers are therefore comparable one by one.
        """
        rng = generator(self.seed, "evaluation")
        noises = (self.task.noise(len(trials), rng) for _ in range(n_noise))
        return np.stack([self.answers(self.task.place(trials, noise).tokens) for noise in noises], axis=1)

    def split_accuracy(self, split: Split, right: Bool[np.ndarray, "trial draw"]) -> Accuracy | None:
        """Return the mean accuracy over test inputs and noise draws, or None without test inputs."""
        return Accuracy.of_draws(right, whole=self.whole(split)) if right.size else None

    def pair_accuracies(
        self, split: Split, trials: Trials, pairs: Sequence[Pair], right: Bool[np.ndarray, "trial draw"]
    ) -> Iterator[PairAccuracy]:
        """Yield the accuracy on each pair that occurs in the trials."""
        asked = self.task.pair_index(trials.pairs)
        order = np.argsort(asked, kind="stable")
        wanted = self.task.pair_index(np.array(pairs))
        ends = [np.searchsorted(asked[order], wanted, side=side) for side in ("left", "right")]
        for pair, start, end in zip(pairs, *ends, strict=True):
            if start < end:
                accuracy = Accuracy.of_draws(right[order[start:end]], whole=self.whole(split))
                yield PairAccuracy(pair, split, accuracy)

    def by_position(
        self, split: Split, trials: Trials, right: Bool[np.ndarray, "trial draw"]
    ) -> dict[int, Accuracy]:
        """Return a map from key positions to accuracies, empty for more than `MOST_POSITIONS` positions."""
        if len(self.task.positions) > MOST_POSITIONS:
            return {}
        return {
            position: Accuracy.of_draws(right[trials.positions == position], whole=self.whole(split))
            for position in np.unique(trials.positions).tolist()
        }

    def ask_batch(
        self, batch: AnchorBatch | TokenBatch | LazyDataset, limit: int
    ) -> tuple[Accuracy, dict[int, Accuracy]]:
        """Return the accuracy on at most `limit` random sequences of a batch, overall and by position.

        Identical sequences count once. A task without noise has few possible sequences. With noise, the batch
        is a sample from a very large set of sequences.
        """
        n, rng = min(limit, len(batch)), generator(self.seed, "evaluation", 2)
        if len(batch) <= _MOST_PERMUTED:
            rows = rng.permutation(len(batch))[:n]
        else:
            rows = rng.choice(len(batch), n, replace=False)
        asked = batch.take(rows).distinct()
        right = self.answers(asked.tokens) == asked.targets.numpy()
        is_anchor = np.isin(asked.tokens.numpy(), list(self.task.anchors))
        position = is_anchor.argmax(axis=1) - 1  # of the key; -1 without anchors
        found, has_noise = {}, self.task.seq_len > self.task.chain_length + 1
        for one in np.intersect1d(position, self.task.positions[:MOST_POSITIONS]).tolist():
            found[one] = Accuracy.of_some(right[position == one])
        return Accuracy.of_some(right, of=None if has_noise else self.task.n_trials("train")), found
