"""Accuracy: a share of sequences that are answered right, with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from anchorlens.configuration import documented
from anchorlens.records import Count, Record

if TYPE_CHECKING:
    from jaxtyping import Bool


@documented
@dataclass(frozen=True)
class Accuracy(Record):
    """A share of sequences, or the mean of another metric over them, with what it was measured on."""

    value: float
    """0..1 for a share; other metrics have their own bounds."""
    standard_error: Annotated[float, Ge(0)]
    """Standard error over the noise draws, or over the choice of sequences (0 if all that exist were
    used)."""
    n_sequences: Count
    """Number of sequences that the model was run on."""

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.standard_error:.3f}"

    @classmethod
    def of_draws(cls, right: Bool[np.ndarray, "question draw"], *, whole: bool = True) -> Accuracy:
        """The mean over questions, each with several draws of noise.

        Args:
            right: whether each answer is right.
            whole: whether these are all possible questions. The standard error is then that of the draws
                within each question. For a random choice of questions it is that of the questions' means,
                which includes both.
        """
        share = right.mean(axis=1)
        n_questions, n_draws = right.shape
        error = 0.0
        if not whole:
            error = float(share.std(ddof=1)) / math.sqrt(n_questions) if n_questions > 1 else 0.5
        elif n_draws > 1:
            variance = share * (1 - share) * n_draws / (n_draws - 1)  # of one draw, unbiased, per question
            error = math.sqrt(variance.sum() / n_draws) / n_questions
        return cls(float(share.mean()), error, right.size)

    @classmethod
    def of_some(cls, right: Bool[np.ndarray, " sequence"], *, of: int | None = None) -> Accuracy:
        """The share of right answers among sequences drawn without replacement.

        Args:
            right: whether each answer is right.
            of: number of sequences they were drawn from; None for very many.
        """
        return cls.of_share(float(right.mean()), len(right), of=of)

    @classmethod
    def of_share(cls, share: float, n: int, *, of: int | None = None) -> Accuracy:
        """A share of `n` sequences with its binomial standard error; `of` as for `of_some`.

        >>> Accuracy.of_share(0.5, 100), Accuracy.of_share(0.5, 100, of=100).standard_error
        (Accuracy(value=0.5, standard_error=0.05, n_sequences=100), 0.0)
        """
        variance = share * (1 - share) / n
        return cls(share, math.sqrt(variance if of is None else variance * (1 - n / of)), n)
