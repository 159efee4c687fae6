"""The result of a benchmark: the score of each reading of a probe on each question, and its raw values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anchorlens.configuration import documented
from anchorlens.extras.benchmark.questions import QUESTIONS, Ending, Outcome
from anchorlens.records import Count, Name, Record, Share, Text
from anchorlens.views import figure, html

if TYPE_CHECKING:
    import plotly.graph_objects as go


@documented
@dataclass(frozen=True)
class BenchmarkModel(Record):
    """A model of the benchmark, and its known properties."""

    name: Name
    """The name of the model's run."""
    ending: Ending
    """The outcome of training, by the model's answers."""
    task: Name
    """The name of the model's task, which all models of one task share."""
    kind: Name
    """The functions of the model's task, which are shifts, multiplication, permutations or affine."""
    regime: Literal["reasoning", "conflict"]
    """The regime of the training data. In `reasoning`, every trained pair obeys the rules. In `conflict`, the
    reversed pair of an unseen pair breaks the rules."""
    label: Name
    """The ending in more detail, with the commutativity of Phase 2 and the kind of other solutions."""
    train: Share
    """The accuracy on the training data."""
    id: Share
    """The accuracy on held-out keys."""
    ood: Share
    """The accuracy on unseen pairs, against the composition."""

    @property
    def outcome(self) -> Outcome:
        """The accuracy class of the model on held-out keys.

        The class is `memorised` if the accuracy on held-out keys is at most 0.3 times the training accuracy.
        The class is `learnt a rule` if the accuracy on held-out keys is at least 0.9 times the training
        accuracy. Otherwise, the class is `between`.
        """
        relative = self.id / self.train if self.train else 0.0
        return "memorised" if relative <= 0.3 else "learnt a rule" if relative >= 0.9 else "between"


@documented
@dataclass(frozen=True)
class QuestionScore(Record):
    """The score of a reading on one question."""

    auc: Share | None
    """The probability that a model with the answer yes has a larger value than a model with the answer no.
    Ties count half, and 0.5 is chance level. Below 0.5, models with the answer yes have the smaller values.
    `None` if an answer has no model with a value."""
    low: Share | None
    """The lower end of the 95% interval, from 2,000 draws of tasks. `None` if the models of one answer belong
    to fewer than three tasks."""
    high: Share | None
    """The upper end of the interval."""
    n_no: Count
    """The number of models with the answer no and a value."""
    n_yes: Count
    """The number of models with the answer yes and a value."""
    n_missing: Count
    """The number of models with an answer but without a value."""

    @property
    def in_words(self) -> str:
        """A text with the AUC and its interval, for example `0.81 (0.70 to 0.90)`.

        >>> QuestionScore(0.5, None, None, 3, 3, 0).in_words
        '0.50'
        """
        if self.auc is None:
            return "none"
        interval = "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.auc:.2f}{interval}"


@documented
@dataclass(frozen=True, eq=False)
class ReadingScore(Record):
    """The scores of one reading of a probe on every question."""

    name: Name
    """The field `probe.field` of a ProbeResult, the name of a function that returns a number, or a key."""
    scores: Mapping[Name, QuestionScore]
    """A map from each question to its score."""
    values: Mapping[Name, float | None]
    """A map from each model to its value, or to `None` without a value."""

    @property
    def telling(self) -> float:
        """The mean distance of the AUCs from chance level (0.5). Tables are sorted by this distance."""
        distances = [abs(score.auc - 0.5) for score in self.scores.values() if score.auc is not None]
        return sum(distances) / len(distances) if distances else 0.0


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Benchmark(Record):
    """The scores of a probe's readings on models whose solution is known."""

    probe: Name
    """The name of the probe."""
    readings: tuple[ReadingScore, ...]
    """The readings, in the probe's order."""
    models: tuple[BenchmarkModel, ...]
    """The models on which it was measured."""
    failures: Mapping[Name, Text]
    """A map from each model without a reading to the reason, in one line."""

    def plot(self) -> go.Figure:
        """Plot the AUC of every reading with its interval, in one panel for each question."""
        return figure(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        best = max(self.readings, key=lambda reading: reading.telling)
        scores = ", ".join(f"{name} {best.scores[name].in_words}" for name in QUESTIONS)
        failed = f"; no reading of {len(self.failures)}" if self.failures else ""
        return f"Benchmark({best.name}, AUC: {scores}; {len(self.models)} models{failed})"
