from dataclasses import dataclass

import numpy as np
import torch

from anchorlens.tasks import Evaluator, Metric, TaskConfig, TokenBatch


@dataclass(frozen=True)
class ModularAddition(TaskConfig):
    """a + b mod p, read as `a b =`: a share of the pairs is trained, the others are held out by seed."""

    kind = "modular_addition"
    metrics = (
        Metric("train", "train", "Train accuracy", "sums that were trained", logged_as="train_accuracy"),
        Metric("held_out", "held out", "Held-out accuracy", "sums held out by seed", logged_as="held_out"),
    )
    seq_len = 3
    modulus: int = 11
    """p: operands and sums are 0..p-1."""
    trained_share: float = 0.7
    """Share of the pairs that is trained."""

    @property
    def d_vocab(self):
        return self.modulus + 1

    @property
    def splits(self):
        pairs = np.random.default_rng(0).permutation(self.modulus**2)
        n_trained = round(self.trained_share * len(pairs))
        return {"train": pairs[:n_trained], "held_out": pairs[n_trained:]}

    def batch(self, pairs):
        a, b = pairs // self.modulus, pairs % self.modulus
        tokens = np.stack([a, b, np.full_like(a, self.modulus)], axis=1)
        return TokenBatch(torch.from_numpy(tokens), torch.from_numpy((a + b) % self.modulus))

    def training_set(self, n, seed):
        return self.batch(np.random.default_rng(seed).choice(self.splits["train"], n))

    def evaluate(self, model, *, training_set=None, seed=0, quick=False):
        evaluator = Evaluator(model, self)
        measures = {split: evaluator.accuracy(self.batch(pairs)) for split, pairs in self.splits.items()}
        return self.evaluation(measures, finite=evaluator.finite, seed=seed)
