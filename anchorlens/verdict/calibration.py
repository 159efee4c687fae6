"""The fitted part of the probe verdict, which `research/calibrate.py` fits and stores in one JSON file.

Logistic models answer yes-or-no questions from the readings. In `reasoning`, the answers determine the phase.

- Does the model generalise to held-out keys? If not, the phase is Phase 1.
- Does the model compose? If it does, the phase is Phase 3.
- Does the model give reversed pairs the same answer? If it does, the phase is Phase 2 with commutativity.

In `conflict`, the answers determine the solution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any, Literal, Self

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Record
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.tasks.two_anchor.task import AnchorTask

FORMAT_VERSION = 5
"""The version of the JSON file."""
Question = Literal["generalises", "composes", "commutative", "inferential", "symmetric", "mixed by position"]
Regime = Literal["reasoning", "conflict"]

DecisionPaths = Mapping[str, tuple[tuple[Question, bool], ...]]
"""The questions and answers that lead to each label."""
DECISION_PATHS: DecisionPaths = {
    LABELS[0]: (("generalises", False),),
    LABELS[1]: (("generalises", True), ("composes", False), ("commutative", False)),
    LABELS[2]: (("generalises", True), ("composes", False), ("commutative", True)),
    LABELS[3]: (("generalises", True), ("composes", True)),
}
"""The questions and answers that lead to each label in `reasoning`."""
SOLUTIONS: DecisionPaths = {
    "inferential": (("inferential", True),),
    "symmetric": (("inferential", False), ("symmetric", True)),
    "mixed by position": (("inferential", False), ("symmetric", False), ("mixed by position", True)),
    "other": (("inferential", False), ("symmetric", False), ("mixed by position", False)),
}
"""The questions and answers that lead to each solution in `conflict`."""
WHERE_ORDER_MATTERS: DecisionPaths = {
    LABELS[0]: (("generalises", False),),
    "Phase 2": (("generalises", True), ("composes", False)),
    LABELS[3]: (("generalises", True), ("composes", True)),
}
"""The questions and answers that lead to each label in `reasoning` if the functions of two anchors do not
commute. Commutativity is undefined for these tasks."""

Values = Mapping[str, float | None]


@frozen_dataclass()
class FeatureTerm:
    """The log-odds of one question from one reading alone, and the weight of the reading."""

    slope: float
    """The increase in the log-odds of yes per unit of the reading, in nats. The fit never
    reverses the sign that the papers or the definition of the phases determine."""
    neutral: float
    """The value at which the reading leaves the odds of yes unchanged."""
    low: float
    """The lower end of the range of the middle 98% of the fitted checkpoints. Smaller values count as this
    end."""
    high: float
    """The upper end of the range of the middle 98% of the fitted checkpoints. Larger values count as this
    end."""
    weight: float
    """The weight of these log-odds in the sum over all readings, at least 0."""

    def log_odds(self, value: float | None) -> float:
        """Return the log-odds of yes from this reading alone, in nats, or 0 for a missing value.

        >>> term = FeatureTerm(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=0.3)
        >>> term.log_odds(0.75), term.log_odds(9.0), term.log_odds(None)
        (0.5, 1.0, 0.0)
        """
        if value is None or not math.isfinite(value):
            return 0.0
        return self.slope * (min(max(value, self.low), self.high) - self.neutral)


@frozen_dataclass()
class QuestionFit:
    """The model of one question: the sum of an intercept and the weighted log-odds of all readings."""

    intercept: float
    """The log-odds of yes without any reading, in nats."""
    votes: Mapping[str, FeatureTerm]
    """The vote of each reading."""
    widening: float = 1.0
    """The divisor of the log-odds at a distance of 1. The divisor is at least 1, and was fit on held-out
    tasks and shapes."""

    def log_odds(self, values: Values, distance: float = 0.0) -> float:
        """Return the log-odds of yes in nats.

        The log-odds shrink with the distance from the calibration models.
        """
        votes = sum(vote.weight * vote.log_odds(values.get(name)) for name, vote in self.votes.items())
        return self.widening**-distance * (self.intercept + votes)


@frozen_dataclass()
class LogisticModel(Record):
    """One fitted verdict, with a model of each question and the ranges of the readings."""

    questions: Mapping[Question, QuestionFit]
    """The model of each question. The answer to a question without a model counts as yes."""
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]
    """The range of the middle 80% of the fitted checkpoints for each reading and label."""
    least_probability: float = 0.5
    """The smallest probability at which a phase is assigned, from 0.5 to 1."""

    @property
    def ends(self) -> DecisionPaths:
        """A map from each label (solution or phase) to the questions and answers that lead to the label."""
        if "inferential" in self.questions:
            return SOLUTIONS
        return DECISION_PATHS if "commutative" in self.questions else WHERE_ORDER_MATTERS

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the verdict distinguishes."""
        ends = self.ends.items()
        return tuple(label for label, steps in ends if all(yes or it in self.questions for it, yes in steps))

    @property
    def voters(self) -> set[str]:
        """The names of the readings whose vote has a weight above 0 in at least one question."""
        votes = [answer.votes for answer in self.questions.values()]
        return {name for of_question in votes for name, vote in of_question.items() if vote.weight > 0}

    def without_commutativity(self) -> Self:
        """Return the verdict for a task in which the order of two anchors matters."""
        questions = {which: fit for which, fit in self.questions.items() if which != "commutative"}
        return replace(self, questions=questions)

    def probabilities(self, values: Values, distance: float = 0.0) -> dict[str, float]:
        """Return the probability of each label, from 0 to 1.

        The sum of all probabilities is 1.

        Args:
            values: a map from the name of each reading to its value, or to `None` for a missing value.
            distance: the distance from the calibration models, at least 0. A larger distance makes the
                probabilities less extreme.
        """
        return {label: math.exp(logs) for label, logs in self._log_probabilities(values, distance).items()}

    def change_of_log_odds(self, values: Values, reading: str, distance: float = 0.0) -> dict[str, float]:
        """Return the change in the log-odds of each label due to one reading, in nats.

        The change is the log-odds with the reading minus the log-odds without the reading, with all other
        readings unchanged.
        """
        without = {**values, reading: None}
        before, after = (self._log_odds_of_labels(one, distance) for one in (without, values))
        return {label: after[label] - before[label] for label in after}

    def _log_probabilities(self, values: Values, distance: float) -> dict[str, float]:
        """Return the log-probability of each label."""
        odds = {which: fit.log_odds(values, distance) for which, fit in self.questions.items()}
        return {
            label: sum(
                _log_sigmoid(odds[which] if yes else -odds[which])
                for which, yes in self.ends[label]
                if which in odds
            )
            for label in self.labels
        }

    def _log_odds_of_labels(self, values: Values, distance: float) -> dict[str, float]:
        """Return the log of the ratio of each label's probability to the sum of all other probabilities."""
        logs = self._log_probabilities(values, distance)
        found = {}
        for label, value in logs.items():
            others = [other for name, other in logs.items() if name != label]
            largest = max(others)
            found[label] = value - largest - math.log(sum(math.exp(other - largest) for other in others))
        return found


def _log_sigmoid(x: float) -> float:
    """Compute log(1 / (1 + exp(-x))) without overflow."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


@frozen_dataclass(eq=False)
class CalibrationRange:
    """The range of models and tasks that a verdict was fit on."""

    known: Mapping[str, Sequence[Any]]
    """The [smallest, largest] value, or the list of values, of each field of the calibration models and their
    tasks."""

    def outside(self, shape: Mapping[str, Any]) -> list[str]:
        """Describe the fields of a model and its task that are outside the calibration range.

        Args:
            shape: the fields of the model and its task, as in `known`. A missing field counts as inside the
                range.
        """
        return [words for words, _ in self._distances(shape)]

    def distance(self, shape: Mapping[str, Any]) -> float:
        """Compute the distance of a model and its task from the calibration models, at least 0.

        The distance is a sum over fields. A numeric field outside the range by a factor r adds log2 r to the
        distance. A field that is not numeric adds 1 if no calibration model has the field's value.
        """
        return sum(distance for _, distance in self._distances(shape))

    def _distances(self, shape: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield (description, distance) of every field outside the calibration range."""
        for name, known in self.known.items():
            value = shape.get(name)
            if value is None:
                continue
            if all(isinstance(number, int | float) for number in known):
                low, high = min(known), max(known)
                if not low <= value <= high:
                    factor = value / high if value > high else low / value
                    yield f"{name} {value} is outside {low}..{high}", math.log2(factor)
            elif value not in known:
                yield f"{name} {value!r} is not one of {', '.join(map(repr, known))}", 1.0


@frozen_dataclass(eq=False)
class OfRegime:
    """The probe verdict for one kind of task, `reasoning` or `conflict`."""

    by_probes: LogisticModel
    """The probe verdict, which uses only readings of trained pairs and weights."""
    range: CalibrationRange
    """The calibration range of the verdict."""


@frozen_dataclass(eq=False)
class Calibration(Record):
    """The fitted probe verdicts, and their calibration ranges."""

    regimes: Mapping[Regime, OfRegime]
    """The verdicts of each regime, which assign a phase in `reasoning` and a solution in `conflict`."""
    provenance: Mapping[str, Any]
    """The origin of the calibration, with the command, the number of checkpoints and the versions."""

    def of(self, task: AnchorTask) -> OfRegime:
        """Return the fitted verdicts for models of a task."""
        found = self.regimes["conflict" if task.in_conflict else "reasoning"]
        if task.in_conflict or task.commutes:
            return found
        return replace(found, by_probes=found.by_probes.without_commutativity())


@functools.cache
def calibration() -> Calibration:
    """Load the calibration that this version ships."""
    return Calibration.from_json((resources.files("anchorlens.verdict") / "calibration.json").read_bytes())
