"""The questions of the verdicts by the inside: what every reading says of each, and what all say together.

Each question is answered yes or no. In `reasoning` the phases follow: does it generalise to held-out keys
(else it is in Phase 1), does it compose (Phase 3), does it treat mirrored pairs as one (Phase 2 with
commutativity)? In `conflict` the solution follows. The early verdict asks first whether the run will come to
a phase at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from anchorlens.configuration import documented
from anchorlens.tasks.shared.phases import LABELS

Question = Literal[
    "comes to a phase",
    "generalises",
    "composes",
    "commutative",
    "inferential",
    "symmetric",
    "mixed by position",
]
Regime = Literal["reasoning", "conflict"]
UNDECIDED = "undecided"
"""End of a run that comes to no phase."""

Ends = Mapping[str, tuple[tuple[Question, bool], ...]]
"""Label -> the questions that lead to it, with their answers."""
ENDS: Ends = {
    LABELS[0]: (("comes to a phase", True), ("generalises", False)),
    LABELS[1]: (
        ("comes to a phase", True),
        ("generalises", True),
        ("composes", False),
        ("commutative", False),
    ),
    LABELS[2]: (
        ("comes to a phase", True),
        ("generalises", True),
        ("composes", False),
        ("commutative", True),
    ),
    LABELS[3]: (("comes to a phase", True), ("generalises", True), ("composes", True)),
    UNDECIDED: (("comes to a phase", False),),
}
"""Those of `reasoning`."""
SOLUTIONS: Ends = {
    "inferential": (("inferential", True),),
    "symmetric": (("inferential", False), ("symmetric", True)),
    "mixed by position": (("inferential", False), ("symmetric", False), ("mixed by position", True)),
    "other": (("inferential", False), ("symmetric", False), ("mixed by position", False)),
}
"""Those of `conflict`, in which a verdict names the solution."""
WHERE_ORDER_MATTERS: Ends = {
    LABELS[0]: (("generalises", False),),
    "Phase 2": (("generalises", True), ("composes", False)),
    LABELS[3]: (("generalises", True), ("composes", True)),
}
"""Those of `reasoning` where the functions of two anchors do not commute: commutativity is not asked."""

Values = Mapping[str, float | None]


def answered_now(label: str) -> dict[str, float]:
    """What a run's phase by behaviour answers at this moment: a value for each question, 1 for yes, 0 for no.

    The early verdict takes them as readings beside those of the inside.

    Args:
        label: of the phase now; any that is no phase's is taken for undecided.

    >>> answered_now("Phase 1")
    {'now comes to a phase': 1.0, 'now generalises': 0.0}
    >>> answered_now("undecided: underfit")
    {'now comes to a phase': 0.0}
    """
    return {f"now {which}": float(yes) for which, yes in ENDS.get(label, ENDS[UNDECIDED])}


@documented
@dataclass(frozen=True)
class Vote:
    """What one reading says of one question by itself, and how much of that counts."""

    slope: float
    """Nats by which the log-odds of yes rise with the reading; its sign is what the papers say."""
    neutral: float
    """The value that says nothing: yes is as likely there as it is without any reading."""
    low: float
    """Smallest value of the middle 98 % of the checkpoints it was fit on; below, it says no more."""
    high: float
    """Largest value of them, likewise."""
    weight: float
    """How much of it counts beside the other readings, >= 0."""

    def says(self, value: float | None) -> float:
        """Log-odds of yes that the reading alone speaks for, in nats; 0 where there is no value.

        >>> vote = Vote(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=0.3)
        >>> vote.says(0.75), vote.says(9.0), vote.says(None)
        (0.5, 1.0, 0.0)
        """
        if value is None or not math.isfinite(value):
            return 0.0
        return self.slope * (min(max(value, self.low), self.high) - self.neutral)


@documented
@dataclass(frozen=True)
class QuestionFit:
    """The model of one question: log-odds of yes = intercept + sum of weight times what each reading says."""

    intercept: float
    """Log-odds of yes where no reading says anything, in nats."""
    votes: Mapping[str, Vote]
    """Reading -> its vote."""
    widening: float = 1.0
    """What log-odds are divided by at a distance of 1 from what it was fit on, >= 1: learnt from tasks and
    shapes left out of the fit."""

    def log_odds(self, values: Values, distance: float = 0.0) -> float:
        """Log-odds of yes, in nats: the less, the further a model is from what this was fit on."""
        return self._over(distance) * (
            self.intercept
            + sum(vote.weight * vote.says(values.get(name)) for name, vote in self.votes.items())
        )

    def part(self, values: Values, reading: str, distance: float = 0.0) -> float:
        """What one reading adds to the log-odds, in nats."""
        vote = self.votes.get(reading)
        return 0.0 if vote is None else self._over(distance) * vote.weight * vote.says(values.get(reading))

    def _over(self, distance: float) -> float:
        return self.widening**-distance


@documented
@dataclass(frozen=True)
class QuestionModel:
    """One fitted verdict: a model of each question, and where the readings lie."""

    answers: Mapping[Question, QuestionFit]
    """Question -> its model; a question that it does not have is answered yes."""
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]
    """Reading -> label -> where the middle 80 % of the fitted checkpoints of that label lie."""
    least_probability: float = 0.5
    """A phase less probable than this is not named, .5..1."""

    @property
    def ends(self) -> Ends:
        """Label -> the questions that lead to it: phases, or solutions where these are asked."""
        if "inferential" in self.answers:
            return SOLUTIONS
        return ENDS if "commutative" in self.answers else WHERE_ORDER_MATTERS

    @property
    def labels(self) -> tuple[str, ...]:
        """What it tells apart."""
        return tuple(
            label
            for label, steps in self.ends.items()
            if all(yes or which in self.answers for which, yes in steps)
        )

    def without_commutativity(self) -> Self:
        """The same for a task in which the order of two anchors matters."""
        answers = {which: answer for which, answer in self.answers.items() if which != "commutative"}
        return replace(self, answers=answers)

    def probabilities(self, values: Values, distance: float = 0.0) -> dict[str, float]:
        """Label -> probability, 0..1, sum 1.

        Args:
            values: reading -> value, None where there is none.
            distance: of the model from what this was fit on, >= 0: the further, the less sure.
        """
        return self._probabilities(
            {which: answer.log_odds(values, distance) for which, answer in self.answers.items()}
        )

    def raised(self, values: Values, reading: str, distance: float = 0.0) -> dict[str, float]:
        """By how much a reading raises the log-odds of each label, in nats; below 0 it lowers them.

        That is the log-odds with it minus those with everything else as it is.
        """
        odds: dict[Question, float] = {}
        without: dict[Question, float] = {}
        for which, answer in self.answers.items():
            odds[which] = answer.log_odds(values, distance)
            without[which] = odds[which] - answer.part(values, reading, distance)
        before, after = self._log_odds_of_labels(without), self._log_odds_of_labels(odds)
        return {label: after[label] - before[label] for label in after}

    def _log_probabilities(self, odds: Mapping[Question, float]) -> dict[str, float]:
        """Label -> log of its probability."""
        return {
            label: sum(
                _log_sigmoid(odds[which] if yes else -odds[which])
                for which, yes in self.ends[label]
                if which in odds
            )
            for label in self.labels
        }

    def _probabilities(self, odds: Mapping[Question, float]) -> dict[str, float]:
        return {label: math.exp(value) for label, value in self._log_probabilities(odds).items()}

    def _log_odds_of_labels(self, odds: Mapping[Question, float]) -> dict[str, float]:
        """Label -> log of its probability over that of all the others."""
        logs = self._log_probabilities(odds)
        found = {}
        for label, value in logs.items():
            others = [other for name, other in logs.items() if name != label]
            largest = max(others)
            found[label] = value - largest - math.log(sum(math.exp(other - largest) for other in others))
        return found

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read it from the JSON file's content."""
        answers: dict[Question, QuestionFit] = {
            which: QuestionFit(
                one["intercept"],
                {reading: Vote(**vote) for reading, vote in one["votes"].items()},
                one["widening"],
            )
            for which, one in content["questions"].items()
        }
        ranges = {
            reading: {label: (low, high) for label, (low, high) in of_labels.items()}
            for reading, of_labels in content["ranges"].items()
        }
        return cls(answers, ranges, content.get("least_probability", 0.5))


def _log_sigmoid(x: float) -> float:
    """log(1 / (1 + exp(-x))), without overflow."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))
