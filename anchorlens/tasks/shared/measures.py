"""What a task measures of a model: its metrics, and accuracies with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Count, Record, limits

if TYPE_CHECKING:
    from jaxtyping import Bool


@frozen_dataclass()
class Accuracy(Record):
    """The proportion of correct sequences, or a metric's mean over sequences, with its standard error."""

    value: float
    """The value: 0..1 for a proportion; other metrics have their own bounds."""
    standard_error: Annotated[float, limits(ge=0)]
    """The standard error over the noise draws or over the choice of sequences, 0 only if every possible input
    was tested. For a proportion, one correct and one wrong answer are added, k + 1 of n + 2, because a few
    correct answers do not rule out wrong ones: 1 of 1 has 0.27, 20 of 20 have 0.04."""
    n_sequences: Count
    """The number of evaluated sequences; each counts once in a train accuracy."""

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.standard_error:.3f}"

    @classmethod
    def of_draws(cls, right: Bool[np.ndarray, "question draw"], *, whole: bool = True) -> Accuracy:
        """Compute the mean accuracy over test inputs, each with one or more draws of noise.

        Args:
            right: a boolean array [test input, draw], true where the answer is correct.
            whole: whether the test inputs are all possible inputs. If true, the standard error covers only
                the noise draws of each input. The standard error is then 0 for a single draw (a task without
                noise). If false, the standard error of the inputs' mean accuracies covers the choice of
                inputs and the noise draws.
        """
        share = right.mean(axis=1)
        n_draws = right.shape[1]
        error = 0.0
        if not whole:
            added = np.append(share, (0.0, 1.0))
            error = float(added.std(ddof=1)) / math.sqrt(len(added))
        elif n_draws > 1:
            p = _with_two_added(float(share.mean()), right.size)
            of_one_draw = share * (1 - share) * n_draws / (n_draws - 1)  # unbiased, per question
            squares = n_draws * float(of_one_draw.sum()) + p**2 + (1 - p) ** 2
            error = math.sqrt(squares) / (right.size + 2)
        return cls(float(share.mean()), error, right.size)

    @classmethod
    def of_some(cls, right: Bool[np.ndarray, " sequence"], *, of: int | None = None) -> Accuracy:
        """Compute the proportion of correct answers among sequences drawn without replacement.

        Args:
            right: a boolean array [sequence], true where the answer is correct.
            of: the number of sequences from which the answered sequences were drawn, or None for a very large
                number.
        """
        return cls.of_share(float(right.mean()), len(right), of=of)

    @classmethod
    def of_share(cls, share: float, n: int, *, of: int | None = None) -> Accuracy:
        """Return the accuracy `share` on `n` sequences, with its binomial standard error.

        `of_some` documents the argument `of`.

        The standard error is sqrt(p (1 - p) / (n + 2)) times sqrt(1 - n / of), with p = (share * n + 1) / (n
        + 2).

        >>> Accuracy.of_share(1.0, 1).standard_error, Accuracy.of_share(1.0, 100, of=100).standard_error
        (0.2721655269759087, 0.0)

        Source: Laplace's rule of succession; Agresti & Coull, The American Statistician 52 (1998) 119.
        """
        p = _with_two_added(share, n)
        variance = p * (1 - p) / (n + 2)
        return cls(share, math.sqrt(variance if of is None else variance * max(0.0, 1 - n / of)), n)


def _with_two_added(share: float, n: int) -> float:
    """Return a proportion of `n` answers after one correct and one wrong answer are added."""
    return (share * n + 1) / (n + 2)


@frozen_dataclass()
class Metric:
    """A measure of a model's answers, declared once for storage, tables and figures."""

    name: str
    """The name in programs: `id`."""
    title: str
    """The title in tables: `ID`."""
    heading: str
    """The title of a figure: `ID accuracy`."""
    meaning: str
    """The meaning in a few words: `trained pairs at held-out (key, position)`."""
    asks: str = ""
    """The test inputs, in the words of a verdict: `held-out keys` for ID, `unseen pairs` for OOD. For train,
    the substitute for unknown training data: `every training sum`."""
    logged_as: str = ""
    """The name in the lines of a run's log; empty if training does not measure the metric."""
    in_tables: bool = True
    """Whether the metric is a column of tables with a row for each model."""
    in_maps: bool = False
    """Whether a sweep shows a map of a metric that is not in tables. It shows a map of every other metric."""
    lowest: float | None = 0.0
    """The smallest possible value; None if the metric has no lower bound."""
    highest: float | None = 1.0
    """The largest possible value; None if the metric has no upper bound."""
    unit: str = "accuracy"
    """The unit, on the axis of the metric's values."""
    higher_is_better: bool | None = True
    """Whether a larger value is better; None if neither direction is better."""


def phase_metrics(
    *, meanings: tuple[str, str, str], asks: tuple[str, str, str], score: str = "accuracy"
) -> tuple[Metric, Metric, Metric]:
    """Return the metrics of train, ID and OOD accuracy, which define the phases.

    Args:
        meanings: the descriptions of the trained, held-out and out-of-distribution data of the three metrics.
        asks: the descriptions of the three data in the words of a verdict. The first description is for the
            substitute for unknown training data.
        score: the measured quantity, such as `accuracy` or `exact match`.
    """
    titles = {"train": "train", "id": "ID", "ood": "OOD"}
    train, id, ood = (
        Metric(name, title, f"{title[0].upper()}{title[1:]} {score}", meaning, asked, f"{name}_accuracy")
        for (name, title), meaning, asked in zip(titles.items(), meanings, asks, strict=True)
    )
    return train, id, ood


def has_labels(metrics: Iterable[Metric]) -> bool:
    """Return whether these metrics include train and ID accuracy, which a label of a model requires.

    >>> from anchorlens import TextTask
    >>> has_labels(TextTask().metrics)
    False
    """
    return {"train", "id"} <= {metric.name for metric in metrics}


def has_phases(metrics: Iterable[Metric]) -> bool:
    """Return whether these metrics include train, ID and OOD accuracy, which define the phases.

    >>> from anchorlens import AnchorTask, TextTask
    >>> has_phases(AnchorTask().metrics), has_phases(TextTask().metrics)
    (True, False)
    """
    return {"train", "id", "ood"} <= {metric.name for metric in metrics}
