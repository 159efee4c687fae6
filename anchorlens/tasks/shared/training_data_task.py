"""A substitute for the task of a model of which only the training data are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from anchorlens.configuration import documented, number
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import LogitsModel, TaskConfig
from anchorlens.tasks.shared.batch import TokenBatch, token_batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.measures import Metric

_MOST_ASKED = 20_000
"""The largest number of sequences on which train accuracy is measured."""


@documented
@dataclass(frozen=True)
class TrainingDataTask(TaskConfig):
    """A task of sequences with targets, without a known rule and without held-out data.

    You cannot train a model on this task with a command, and you cannot name the task in a file.
    """

    kind: ClassVar[str] = "training-data"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("train", "train", "Train accuracy", "training data, each sequence right as a whole"),
    )

    d_vocab: int = number(2, minimum=1)
    """The number of tokens: the largest token plus 1."""
    n_answers: int = number(2, minimum=1)
    """The number of answers: the largest target plus 1."""
    seq_len: int = number(1, minimum=1)
    """The number of tokens per sequence."""

    @property
    def d_vocab_out(self) -> int:
        """The number of answers."""
        return self.n_answers

    @classmethod
    def of(cls, training_set: object) -> Self:
        """Build a task from a caller's training data.

        Raises:
            ValueError: If the data are not tokens [batch, pos] with targets [batch] or [batch, pos].
        """
        data = token_batch(training_set, every_position=None)
        n_tokens, n_answers = (int(part.max()) + 1 for part in (data.tokens, data.targets))
        return cls(n_tokens, n_answers, data.tokens.shape[1])

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
        self, model: LogitsModel, *, training_set: object, seed: int = 0, quick: bool = False
    ) -> Evaluation:
        """Evaluate a model on its distinct training sequences, or on a random choice of 20,000 sequences.

        Args:
            model: the model that returns the logits.
            training_set: tokens [batch, pos] and targets [batch] or [batch, pos].
            seed: the seed of the random choice.
            quick: an option without an effect, because train accuracy is the only metric.

        Raises:
            ValueError: If the training data are invalid, or the model cannot read the sequences.
        """
        data, evaluator = self.checked_training_set(training_set).distinct(), Evaluator(model, self)
        rows = generator(seed, "probe").permutation(len(data))[:_MOST_ASKED]
        train = evaluator.accuracy(data.take(rows), of=len(data))
        return self.evaluation({"train": train}, finite=evaluator.finite, seed=seed)
