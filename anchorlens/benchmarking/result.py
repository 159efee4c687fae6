"""What a benchmark found: how well each reading of a probe answers each question, and its raw values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anchorlens.benchmarking.questions import QUESTIONS, Ending
from anchorlens.configuration import documented
from anchorlens.records import Count, Name, Record, Share, Text
from anchorlens.views import figure, html

if TYPE_CHECKING:
    import plotly.graph_objects as go


@documented
@dataclass(frozen=True)
class BenchmarkModel(Record):
    """A model of the benchmark, and what is known of it."""

    name: Name
    """Of its run."""
    ending: Ending
    """What its answers say that it has learnt."""
    task: Name
    """The same for all models of one task."""
    kind: Name
    """What the functions of its task are: shifts, multiplication, permutations or affine."""
    regime: Literal["reasoning", "conflict"]
    """Whether every trained pair obeys the rules, or the mirror of an unseen pair breaks them."""
    label: Name
    """The same more closely: whether Phase 2 is commutative, and which other solution."""
    train: Share
    """Accuracy on its training data."""
    id: Share
    """On held-out keys."""
    ood: Share
    """On unseen pairs, against the composition."""


@documented
@dataclass(frozen=True)
class QuestionScore(Record):
    """How well a reading answers one question."""

    auc: Share | None
    """Share of the pairs of models, one of yes and one of no, in which that of yes has the larger value, ties
    counting half: .5 tells nothing; below .5 the models of yes have the smaller values. It is not turned
    round. None where a side has no model with a value."""
    low: Share | None
    """Lower end of its 95 % interval, from 2,000 draws of tasks; None where a side has fewer than three."""
    high: Share | None
    """Upper end."""
    n_no: Count
    """Models of no that the reading has a value for."""
    n_yes: Count
    """Models of yes."""
    n_missing: Count
    """Models of either side that it has no value for."""

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
    """`probe.field` of a ProbeResult; the function's name where it gives a number; a key of its mapping."""
    scores: Mapping[Name, QuestionScore]
    """Question -> score."""
    values: Mapping[Name, float | None]
    """Model -> value; None where it has none."""

    @property
    def telling(self) -> float:
        """How far its AUCs are from .5 on average, whichever their sign, 0..0.5; tables are sorted by it."""
        distances = [abs(score.auc - 0.5) for score in self.scores.values() if score.auc is not None]
        return sum(distances) / len(distances) if distances else 0.0


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Benchmark(Record):
    """How well the readings of a probe tell apart models whose solution is known."""

    probe: Name
    """Whose readings they are."""
    readings: tuple[ReadingScore, ...]
    """In the order in which the probe gives them."""
    models: tuple[BenchmarkModel, ...]
    """Models that were asked."""
    failures: Mapping[Name, Text]
    """Model -> why the probe gave no reading of it, in a line."""

    def plot(self) -> go.Figure:
        """The AUC of every reading with its interval, a panel for each question."""
        return figure(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        best = max(self.readings, key=lambda reading: reading.telling)
        scores = ", ".join(f"{name} {best.scores[name].in_words}" for name in QUESTIONS)
        failed = f"; no reading of {len(self.failures)}" if self.failures else ""
        return f"Benchmark({best.name}, AUC: {scores}; {len(self.models)} models{failed})"
