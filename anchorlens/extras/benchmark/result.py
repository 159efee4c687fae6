"""The result of a benchmark: how well each reading of a probe answers each question, and its raw values."""

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
    """Name of its run."""
    ending: Ending
    """What it has learnt, by its answers."""
    task: Name
    """Name of its task, the same for all models of one task."""
    kind: Name
    """The functions of its task: shifts, multiplication, permutations or affine."""
    regime: Literal["reasoning", "conflict"]
    """`reasoning`: every trained pair obeys the rules; `conflict`: the mirror of an unseen pair breaks
    them."""
    label: Name
    """The ending in more detail: whether Phase 2 is commutative, and which other solution."""
    train: Share
    """Accuracy on its training data."""
    id: Share
    """Accuracy on held-out keys."""
    ood: Share
    """Accuracy on unseen pairs, against the composition."""

    @property
    def outcome(self) -> Outcome:
        """Whether it answers held-out keys.

        `memorised`: its accuracy on them is at most 0.3 of that on its training data; `learnt a rule`: at
        least 0.9 of it; else `between`.
        """
        relative = self.id / self.train if self.train else 0.0
        return "memorised" if relative <= 0.3 else "learnt a rule" if relative >= 0.9 else "between"


@documented
@dataclass(frozen=True)
class QuestionScore(Record):
    """How well a reading answers one question."""

    auc: Share | None
    """Probability that a yes-model has a larger value than a no-model, ties counting half: .5 is chance;
    below .5 the yes-models have the smaller values (1 - AUC is not taken). None where a side has no model
    with a value."""
    low: Share | None
    """Lower end of its 95% interval, from 2,000 draws of tasks; None where a side has fewer than three
    tasks."""
    high: Share | None
    """Upper end of the interval."""
    n_no: Count
    """Number of no-models with a value."""
    n_yes: Count
    """Number of yes-models with a value."""
    n_missing: Count
    """Number of models of either side without a value."""

    @property
    def in_words(self) -> str:
        """The AUC with its interval: `0.81 (0.70 to 0.90)`.

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
    """How well one number of a probe answers every question."""

    name: Name
    """`probe.field` of a ProbeResult, the function's name if it returns a number, or a key of its mapping."""
    scores: Mapping[Name, QuestionScore]
    """Question -> score."""
    values: Mapping[Name, float | None]
    """Model -> value; None where there is none."""

    @property
    def telling(self) -> float:
        """Mean distance of its AUCs from .5, 0..0.5; tables are sorted by it."""
        distances = [abs(score.auc - 0.5) for score in self.scores.values() if score.auc is not None]
        return sum(distances) / len(distances) if distances else 0.0


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Benchmark(Record):
    """How well the readings of a probe distinguish models whose solution is known."""

    probe: Name
    """Name of the probe."""
    readings: tuple[ReadingScore, ...]
    """Its readings, in the probe's order."""
    models: tuple[BenchmarkModel, ...]
    """The models on which it was measured."""
    failures: Mapping[Name, Text]
    """Model -> why the probe gave no reading of it, in one line."""

    def plot(self) -> go.Figure:
        """Plot the AUC of every reading with its interval, a panel for each question."""
        return figure(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        best = max(self.readings, key=lambda reading: reading.telling)
        scores = ", ".join(f"{name} {best.scores[name].in_words}" for name in QUESTIONS)
        failed = f"; no reading of {len(self.failures)}" if self.failures else ""
        return f"Benchmark({best.name}, AUC: {scores}; {len(self.models)} models{failed})"
