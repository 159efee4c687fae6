"""Asking a model every (pair, key, position) of a split, under several draws of noise, in bounded batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from anchorlens.configuration import documented
from anchorlens.models.config import ModelConfig
from anchorlens.models.measuring import BATCH_BYTES, device_of, evaluation_mode, sequence_bytes
from anchorlens.randomness import generator
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.asking import at_end, check_capacity
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.two_anchor.anchor_functions import Pair
from anchorlens.tasks.two_anchor.by_position import MOST_POSITIONS
from anchorlens.tasks.two_anchor.drawing import Drawing
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Trials
from anchorlens.tasks.two_anchor.splits import Split

if TYPE_CHECKING:
    from anchorlens.tasks.two_anchor.task import AnchorTask

_MOST_PERMUTED = 10_000_000
"""Sequences of a training set of which a permutation is made, to choose some."""

Model = Callable[[Tensor], Tensor]
"""Anything that maps tokens [batch, pos] to logits [batch, pos, d_vocab], as a HookedTransformer does, or
to [batch, 1, d_vocab], those of the last position alone."""


@documented
@dataclass(frozen=True)
class PairAccuracy:
    """Accuracy of one anchor pair."""

    pair: Pair
    """Anchor tokens in order."""
    split: Split
    """`id`: a seen pair on held-out (key, position); `ood`: an unseen pair on all of them."""
    accuracy: Accuracy
    """Against the trained target for seen pairs, the inferential one for unseen."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PairAccuracy:
        """Read it from JSON data: its three fields."""
        return cls(tuple(values["pair"]), values["split"], Accuracy.from_dict(values["accuracy"]))


class Questions:
    """Asks one model for its answers (argmax at the last position), in bounded batches."""

    def __init__(self, model: Model, task: AnchorTask, seed: int, batch_size: int, max_cells: int) -> None:
        """The arguments are those of `evaluate`."""
        check_capacity(model, task)
        self.model, self.task, self.seed = at_end(model, 1), task, seed
        config = getattr(model, "config", None)
        if isinstance(config, ModelConfig):
            batch_size = min(batch_size, max(1, BATCH_BYTES // sequence_bytes(config, task.seq_len)))
        self.batch_size, self.max_cells = batch_size, max_cells
        self.device = device_of(model) if isinstance(model, torch.nn.Module) else torch.device("cpu")
        self.finite = True

    def whole(self, split: Split) -> bool:
        """Whether every (pair, key, position) of a split is asked."""
        return self.task.n_trials(split) <= self.max_cells

    def trials(self, split: Split) -> Trials:
        """Every (pair, key, position) of a split, or a random choice of `max_cells` of them."""
        if self.whole(split):
            return self.task.trials(split)
        rng = generator(self.seed, "evaluation", 1)
        return self.task.some_trials(
            split, rng.choice(self.task.n_trials(split), self.max_cells, replace=False)
        )

    def ask(self, trials: Trials, n_noise: int) -> Int[np.ndarray, "trial draw"]:
        """Answers for every (pair, key, position) under `n_noise` draws of noise.

        The noise is a function of the seed and of how many there are: pairs and their mirrors, asked with
        the same keys and positions, get the same noise and are comparable one by one.
        """
        rng = generator(self.seed, "evaluation")
        noises = (self.task.noise(len(trials), rng) for _ in range(n_noise))
        return np.stack([self._answers(self.task.place(trials, noise).tokens) for noise in noises], axis=1)

    def accuracy(self, split: Split, right: Bool[np.ndarray, "trial draw"]) -> Accuracy | None:
        """Mean over questions and draws; None where there is no question."""
        return Accuracy.of_draws(right, whole=self.whole(split)) if right.size else None

    def pair_accuracies(
        self, split: Split, trials: Trials, pairs: Sequence[Pair], right: Bool[np.ndarray, "trial draw"]
    ) -> Iterator[PairAccuracy]:
        """The accuracy of each pair that is among those asked."""
        asked = self.task.pair_index(trials.pairs)
        order = np.argsort(asked, kind="stable")
        wanted = self.task.pair_index(np.array(pairs))
        ends = [np.searchsorted(asked[order], wanted, side=side) for side in ("left", "right")]
        for pair, start, end in zip(pairs, *ends, strict=True):
            if start < end:
                yield PairAccuracy(
                    pair, split, Accuracy.of_draws(right[order[start:end]], whole=self.whole(split))
                )

    def by_position(
        self, split: Split, trials: Trials, right: Bool[np.ndarray, "trial draw"]
    ) -> dict[int, Accuracy]:
        """Position of the key -> accuracy there; of none where there are more than `MOST_POSITIONS`."""
        if len(self.task.positions) > MOST_POSITIONS:
            return {}
        at = {position: trials.positions == position for position in np.unique(trials.positions).tolist()}
        return {
            position: Accuracy.of_draws(right[there], whole=self.whole(split))
            for position, there in at.items()
        }

    def ask_batch(
        self, batch: AnchorBatch | TokenBatch | Drawing, limit: int
    ) -> tuple[Accuracy, dict[int, Accuracy]]:
        """Accuracy on a batch, or on a random choice of `limit` of its sequences, in all and by position."""
        n, rng = min(limit, len(batch)), generator(self.seed, "evaluation", 2)
        if len(batch) <= _MOST_PERMUTED:
            rows = rng.permutation(len(batch))[:n]
        else:
            rows = rng.choice(len(batch), n, replace=False)
        asked = batch.take(rows)
        right = self._answers(asked.tokens) == asked.targets.numpy()
        is_anchor = np.isin(asked.tokens.numpy(), list(self.task.anchors))
        position = is_anchor.argmax(axis=1) - 1  # of the key; -1 without anchors
        found = {}
        for one in np.intersect1d(position, self.task.positions[:MOST_POSITIONS]).tolist():
            there = right[position == one]
            found[one] = Accuracy.of_some(there, of=round(len(there) * len(batch) / n))
        return Accuracy.of_some(right, of=len(batch)), found

    def _answers(self, tokens: Int[Tensor, "batch pos"]) -> Int[np.ndarray, " batch"]:
        answers = []
        with evaluation_mode(self.model), torch.inference_mode():
            for chunk in tokens.split(self.batch_size):
                logits = self.model(chunk.to(self.device))
                self._check(logits, chunk)
                last = logits[:, -1]  # [batch, d_vocab]
                self.finite = self.finite and bool(last.isfinite().all())
                answers.append(last.argmax(dim=-1).cpu().numpy())
        return np.concatenate(answers)

    def _check(self, logits: Any, tokens: Int[Tensor, "batch pos"]) -> None:
        shape, d_vocab = tuple(getattr(logits, "shape", ())), self.task.d_vocab
        n_sequences, n_pos = tokens.shape
        if len(shape) != 3 or shape[0] != n_sequences or shape[1] not in (1, n_pos) or shape[2] < d_vocab:
            raise ValueError(
                f"model must give logits [batch, pos, d_vocab >= {d_vocab}] for tokens "
                f"{list(tokens.shape)}, got {list(shape) or type(logits).__name__}; is it of this task?"
            )
