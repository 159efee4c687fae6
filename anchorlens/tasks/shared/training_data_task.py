"""A substitute for the task of a model of which only the training data are known."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from anchorlens.configuration import frozen_dataclass, number
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import MOST_ASKED, LogitsModel, TaskConfig
from anchorlens.tasks.shared.batch import TokenBatch, distinct_rows, token_batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.measures import Accuracy, Metric


@frozen_dataclass()
class TrainingDataTask(TaskConfig):
    """A task of sequences with targets, without a known rule.

    You cannot train a model on this task with a command, and you cannot name the task in a file.
    """

    kind: ClassVar[str] = "training-data"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("train", "train", "Train accuracy", "training data, each sequence right as a whole"),
        Metric(
            "held_out",
            "held out",
            "Held-out accuracy",
            "held-out data, each sequence right as a whole",
            "held-out data",
        ),
    )
    held_out = "the held-out data that are given"

    d_vocab: int = number(2, minimum=1)
    """The number of tokens: the largest token plus 1."""
    n_answers: int = number(2, minimum=1)
    """The number of answers: the largest target plus 1."""
    seq_len: int = number(1, minimum=1)
    """The number of tokens per sequence."""
    has_held_out: bool = False
    """Whether held-out data are given."""

    def __post_init__(self) -> None:
        """Leave out the metric of held-out data if there are none."""
        super().__post_init__()
        if not self.has_held_out:
            object.__setattr__(self, "metrics", self.metrics[:1])

    @property
    def d_vocab_out(self) -> int:
        """The number of answers."""
        return self.n_answers

    @classmethod
    def of(cls, training_set: object, held_out: object = None) -> Self:
        """Build a task from a caller's training data and held-out data.

        Raises:
            ValueError: If the data are not tokens [batch, pos] with targets [batch] or [batch, pos].
        """
        data = token_batch(training_set, every_position=None)
        parts = [data] if held_out is None else [data, token_batch(held_out, every_position=None)]
        n_tokens = 1 + max(int(one.tokens.max()) for one in parts)
        n_answers = 1 + max(int(one.targets.max()) for one in parts)
        return cls(n_tokens, n_answers, data.tokens.shape[1], len(parts) > 1)

    def checked_training_set(self, training_set: object) -> TokenBatch:
        """Check a caller's training data, which may have any targets, and return the data.

        Raises:
            ValueError: If the data are not a pair (tokens, targets), or do not have the task's sequence
                length.
        """
        return token_batch(training_set, seq_len=self.seq_len, every_position=None)

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Raise an error, because no rule to draw sequences is known.

        Raises:
            ValueError: Always.
        """
        raise ValueError("training data must be given for an unknown task, got none. Give the training_set.")

    def evaluate(
        self,
        model: LogitsModel,
        *,
        training_set: object,
        held_out: object = None,
        seed: int = 0,
        quick: bool = False,
    ) -> Evaluation:
        """Evaluate a model on its distinct training sequences, and on held-out data.

        At most 20,000 random sequences of each are evaluated. Sequences of `held_out` that were trained do
        not count.

        Args:
            model: the model that returns the logits.
            training_set: tokens [batch, pos] and targets [batch] or [batch, pos].
            held_out: data of the same form that the model was not trained on.
            seed: the seed of the random choice.
            quick: an option without an effect.

        Raises:
            ValueError: If the data are invalid, every held-out sequence was trained, or the model cannot read
                the sequences.
        """
        data, evaluator = self.checked_training_set(training_set).distinct(), Evaluator(model, self)
        parts, more = {"train": data}, {}
        if held_out is not None:
            given = self.checked_training_set(held_out).distinct()
            parts["held_out"], more = self._never_trained(data, given)
        measures = {}
        for name, part in parts.items():
            rows = generator(seed, "probe").permutation(len(part))[:MOST_ASKED]
            of = len(part) if name == "train" else None  # held-out data stand for many more
            measures[name] = Accuracy.of_some(evaluator.right(part.take(rows)), of=of)
        more["notes"] = (*more.get("notes", ()), *evaluator.notes)
        return self.evaluation(measures, finite=evaluator.finite, seed=seed, **more)

    def _never_trained(self, data: TokenBatch, held_out: TokenBatch) -> tuple[TokenBatch, dict[str, Any]]:
        """Return the held-out sequences that were not trained, with the chance level and a note.

        Raises:
            ValueError: If every held-out sequence was trained.
        """
        import torch

        _, number = distinct_rows(torch.cat([data.tokens, held_out.tokens]).numpy())
        is_new = ~np.isin(number[len(data) :], number[: len(data)])
        if not is_new.any():
            raise ValueError(
                f"held-out data must not be trained, got {len(is_new):,} sequences that are all in the "
                "training data. Give data that the model was not trained on"
            )
        fresh, more = held_out.take(np.flatnonzero(is_new)), {}
        if not is_new.all():
            n, of = int((~is_new).sum()), len(is_new)
            more["notes"] = (f"{n:,} of the {of:,} held-out sequences were trained, and do not count",)
        if data.targets.dim() == fresh.targets.dim() == 1:
            commonest = data.targets.long().bincount().argmax()
            more["chance"] = float((fresh.targets == commonest).double().mean())
        return fresh, more
