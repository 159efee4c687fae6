from dataclasses import dataclass

import numpy as np
import torch

from anchorlens.tasks import Evaluator, Metric, TaskConfig, TokenBatch


@dataclass(frozen=True)
class LargestOfTwo(TaskConfig):
    """The largest of two numbers: pairs with an even sum are trained, the others are held out."""

    kind = "largest"
    metrics = (
        Metric("train", "train", "Train accuracy", "trained pairs", logged_as="train_accuracy"),
        Metric("held_out", "held out", "Held-out accuracy", "pairs with an odd sum", logged_as="held_out"),
    )
    seq_len = 2
    n_numbers: int = 11
    """How many numbers there are, from 0 on."""

    @property
    def d_vocab(self):
        return self.n_numbers

    def batch(self, odd):
        pairs = np.argwhere(np.add.outer(range(self.n_numbers), range(self.n_numbers)) % 2 == odd)
        return TokenBatch(torch.from_numpy(pairs), torch.from_numpy(pairs.max(axis=1)))

    def training_set(self, n, seed):
        pairs = self.batch(0)
        return pairs.take(np.random.default_rng(seed).integers(len(pairs), size=n))

    def evaluate(self, model, *, training_set=None, seed=0, quick=False):
        evaluator = Evaluator(model, self)
        measures = {name: evaluator.accuracy(self.batch(k)) for k, name in enumerate(("train", "held_out"))}
        return self.evaluation(measures, finite=evaluator.finite, seed=seed)
