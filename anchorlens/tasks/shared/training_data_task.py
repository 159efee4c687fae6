"""TrainingDataTask: what stands for the task of a model where only its training data are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from anchorlens.configuration import documented, number
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import LogitsModel, TaskConfig
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.checked_batch import token_batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.metric import Metric

_MOST_ASKED = 20_000
"""Largest number of sequences on which train accuracy is measured."""


@documented
@dataclass(frozen=True)
class TrainingDataTask(TaskConfig):
    """Sequences of tokens and their targets; neither a rule nor held-out data are known.

    No command trains it, and no file names it.
    """

    kind: ClassVar[str] = "training-data"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("train", "train", "Train accuracy", "training data, each sequence right as a whole"),
    )

    d_vocab: int = number(2, minimum=1)
    """Number of tokens, the largest in a sequence and 1."""
    n_answers: int = number(2, minimum=1)
    """Number of answers, the largest target and 1."""
    seq_len: int = number(1, minimum=1)
    """Tokens per sequence."""

    @property
    def d_vocab_out(self) -> int:
        """Number of answers."""
        return self.n_answers

    @classmethod
    def of(cls, training_set: object) -> Self:
        """The task of training data that a caller gives.

        Raises:
            ValueError: they are no tokens [batch, pos] with targets [batch] or [batch, pos].
        """
        data = token_batch(training_set, every_position=None)
        n_tokens, n_answers = (int(part.max()) + 1 for part in (data.tokens, data.targets))
        return cls(n_tokens, n_answers, data.tokens.shape[1])

    def checked_training_set(self, training_set: object) -> TokenBatch:
        """Training data that a caller gives, with any targets.

        Raises:
            ValueError: they are something else, or of another length.
        """
        return token_batch(training_set, seq_len=self.seq_len, every_position=None)

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Refused: no rule is known by which sequences could be drawn.

        Raises:
            ValueError: always.
        """
        raise ValueError("training data cannot be drawn, because the task is unknown. Give the training_set")

    def evaluate(
        self, model: LogitsModel, *, training_set: object, seed: int = 0, quick: bool = False
    ) -> Evaluation:
        """Evaluate the training data, of very many a random 20,000.

        Args:
            model: gives the logits.
            training_set: tokens [batch, pos] and targets [batch] or [batch, pos].
            seed: seed of the random choice.
            quick: changes nothing; train accuracy is all that there is.

        Raises:
            ValueError: unusable training data, or a model that cannot read them.
        """
        data, evaluator = self.checked_training_set(training_set).distinct(), Evaluator(model, self)
        rows = generator(seed, "probe").permutation(len(data))[:_MOST_ASKED]
        train = evaluator.accuracy(data.take(rows), of=len(data))
        return self.evaluation({"train": train}, finite=evaluator.finite, seed=seed)
