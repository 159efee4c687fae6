"""Evaluation: what was measured of a model's answers to a task, and the phase that follows from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from anchorlens.configuration import documented
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.metric import Metric, has_phases
from anchorlens.tasks.shared.overlap import Overlap
from anchorlens.tasks.shared.phases import CLEAR, TRAINING_SET, Phase, phase_by_definition
from anchorlens.tasks.shared.sketch import Answer, Bars, Curve, Grid, Lines, Mosaic, Sketch, Transcript
from anchorlens.views import html

_DIGITS = 6
"""Of the numbers of a sketch, in JSON."""


class Evaluation(ABC):
    """What every evaluation offers, whatever was asked: measures with standard errors, and a phase."""

    finite: bool
    """Whether every logit was finite."""
    options: dict[str, Any]
    """What was asked how: the seed, and the task in words."""
    train_source: str
    """What `train` was asked on: `training set`, or what stands for it where that is not known."""
    chance: float = 0.0
    """Accuracy of an answer at random, which moves the thresholds of the phases; 0 where it is small."""
    held_out: str = ""
    """What the task leaves out of training, in words."""
    overlap: Overlap | None = None
    """The training sequences that ask held-out questions; None where the training data are not known."""
    drawn_at_random: ClassVar[str] = "examples asked, 0 where all were"
    """What the standard errors are of, in words."""

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """What the task measures."""

    @abstractmethod
    def measure(self, name: str) -> Accuracy | None:
        """The value of a metric with its standard error; None where it is not defined.

        Args:
            name: of one of `metrics`.
        """

    @property
    def train_is_known(self) -> bool:
        """Whether `train` was asked on the training data themselves."""
        return self.train_source == TRAINING_SET

    @property
    def assumption(self) -> str | None:
        """What the phase takes for granted, in a line; None where the training data are known."""
        if self.train_is_known or not has_phases(self.metrics):
            return None
        return (
            "its training data are not known: the verdict assumes that it was never trained on "
            f"{self.held_out}, and train accuracy is asked on {self.train_source}"
        )

    @property
    def at_chance(self) -> str | None:
        """Why its answers are no sign that it was trained on the task at all; None where they are one."""
        return None

    @property
    def sketches(self) -> Sequence[Sketch]:
        """Pictures of the answers, as data."""
        return ()

    @property
    def phase(self) -> Phase:
        """By definition, from the measures."""
        return self._named(None)

    def phase_if_clear(self) -> Phase:
        """The phase by definition, or `undecided: borderline`.

        Where a number that decides is within two standard errors of its threshold there is no phase; where
        only commutativity is, Phase 2 with `commutative` None. The standard errors are those of the draws.
        """
        return self._named(CLEAR)

    def _named(self, standard_errors: int | None) -> Phase:
        known = {metric.name: self.measure(metric.name) for metric in self.metrics}
        asks = {metric.name: metric.asks for metric in self.metrics}
        train, id = known.get("train"), known.get("id")
        if train is None or id is None or "ood" not in known:
            return Phase.undecided(
                "not defined", "the phases are defined by train, ID and OOD accuracy, which this task lacks"
            )
        if self.finite and self.overlap is not None and self.overlap.there_is_some:
            trained = self.overlap.in_words(asks)
            return Phase.undecided(
                "held-out questions were trained", f"{trained}; accuracy there is no test of generalisation"
            )
        return phase_by_definition(
            train if self.finite else math.nan,
            id,
            known["ood"],
            known.get("commutativity"),
            standard_errors=standard_errors,
            train_source=self.train_source,
            asked=(asks["id"] or "held-out data", asks["ood"] or "left-out data"),
            chance=self.chance,
        )

    def rows(self) -> Iterator[tuple[str, Accuracy, str]]:
        """Title, value and meaning of every metric that was measured."""
        for metric in self.metrics:
            if (value := self.measure(metric.name)) is not None:
                unknown = metric.name == "train" and not self.train_is_known
                yield metric.title, value, metric.asks if unknown else metric.meaning

    def headline(self) -> dict[str, Any]:
        """The few numbers that sum it up, JSON-ready: every measure (None: not defined) and the phase."""
        measures = {metric.name: self.measure(metric.name) for metric in self.metrics}
        values = {name: None if one is None else one.value for name, one in measures.items()}
        return {**values, "phase": self.phase.phase, "label": self.phase.label}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""

    def __repr__(self) -> str:
        known = {metric.title: self.measure(metric.name) for metric in self.metrics if metric.in_tables}
        numbers = (f"{title} {one.value:.3f}" for title, one in known.items() if one is not None)
        return f"{type(self).__name__}({self.phase.label}; {', '.join(numbers)})"

    _repr_html_ = html


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Measured(Evaluation):
    """An evaluation that consists of its measures, and of pictures as data."""

    kind: str
    """Which kind of task was asked: `addition`, `scan`."""
    declared: tuple[Metric, ...]
    """The metrics of the task."""
    measures: Mapping[str, Accuracy | None]
    """Metric -> its value; None where it is not defined."""
    finite: bool
    """Whether every logit was finite."""
    options: dict[str, Any] = field(default_factory=dict)
    """What was asked how: the seed, and the task in words."""
    drawn: Sequence[Sketch] = ()
    """Pictures of the answers, as data."""
    train_source: str = TRAINING_SET
    """What `train` was asked on: `training set`, or what stands for it where that is not known."""
    chance: float = 0.0
    """Accuracy of an answer at random, where that is not small: .5 if one of two labels is asked for."""
    held_out: str = ""
    """What the task leaves out of training, in words."""
    overlap: Overlap | None = None
    """The training sequences that ask held-out questions; None where the training data are not known."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What the task measures."""
        return self.declared

    @property
    def sketches(self) -> Sequence[Sketch]:
        """Pictures of the answers, as data."""
        return self.drawn

    def measure(self, name: str) -> Accuracy | None:
        """The value of a metric with its standard error; None where it is not defined."""
        return self.measures.get(name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return {
            "kind": self.kind,
            "measures": {name: None if one is None else asdict(one) for name, one in self.measures.items()},
            "train_source": self.train_source,
            "chance": self.chance,
            "held_out": self.held_out,
            "overlap": None if self.overlap is None else asdict(self.overlap),
            "finite": self.finite,
            "options": dict(self.options),
            "sketches": [{"sketch": type(one).__name__, **_rounded(asdict(one))} for one in self.drawn],
            "phase": self.phase.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], metrics: Sequence[Metric]) -> Measured:
        """Read what `to_dict` gave, also after a way through JSON.

        Args:
            values: JSON data.
            metrics: of the task.

        Raises:
            KeyError: something is missing.
        """
        measures = {
            metric.name: None if (one := values["measures"][metric.name]) is None else Accuracy.from_dict(one)
            for metric in metrics
        }
        sketches = tuple(map(_sketch, values["sketches"]))
        kind, finite, options = values["kind"], values["finite"], values["options"]
        source = values["train_source"]
        chance = values["chance"]
        overlap = Overlap.from_dict(values["overlap"])
        held_out = values["held_out"]
        return cls(
            kind, tuple(metrics), measures, finite, options, sketches, source, chance, held_out, overlap
        )


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, _DIGITS)
    return value


def _sketch(values: Mapping[str, Any]) -> Sketch:
    kinds = {each.__name__: each for each in (Grid, Curve, Lines, Bars, Transcript, Mosaic)}
    fields = {name: value for name, value in values.items() if name != "sketch"}
    if "answers" in fields:
        fields["answers"] = tuple(Answer(**one) for one in fields["answers"])
    return kinds[values["sketch"]](**fields)
