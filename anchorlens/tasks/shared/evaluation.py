"""Evaluation: the metrics of a model on a task, and the phase that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from anchorlens.configuration import documented
from anchorlens.records import UNSTORED, Name, Plain, Record, Share, Text, limits
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.figure_specs import FigureSpec
from anchorlens.tasks.shared.metric import Metric, has_labels
from anchorlens.tasks.shared.other_targets import OtherTargets
from anchorlens.tasks.shared.overlap import Overlap
from anchorlens.tasks.shared.phases import (
    CLEAR,
    FEWEST_TRAINED,
    TRAINING_SET,
    Phase,
    learnt_by_definition,
    phase_by_definition,
)
from anchorlens.views import html


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Record):
    """The evaluation of a model on a task: metrics with standard errors, pictures as data, and a phase."""

    derived: ClassVar[tuple[str, ...]] = ("phase",)
    unstored: ClassVar[tuple[str, ...]] = ("metrics",)
    drawn_at_random: ClassVar[str] = "sampled test inputs, 0 if all were tested"
    """What the standard errors are over, in words."""
    kind: Name
    """The kind of the task: `two_anchor`, `scan`."""
    metrics: Annotated[tuple[Metric, ...], UNSTORED]
    """The metrics of the task."""
    measures: Mapping[Name, Accuracy | None]
    """Metric -> its value with a standard error; None where it is not defined, or a logit was not finite."""
    finite: bool
    """Whether every logit was finite; if not, nothing is measured and there is no phase."""
    options: Plain = field(default_factory=dict)
    """Settings of the evaluation: the seed, and the task in words."""
    figure_specs: Annotated[Sequence[FigureSpec], limits(max_length=20)] = ()
    """Pictures of the answers, as data."""
    train_source: Name = TRAINING_SET
    """What `train` was measured on: `training set`, or what replaces it where that is not known."""
    chance: Share = 0.0
    """Accuracy of random answers, where that is not small: .5 for one of two labels. It moves the thresholds
    of the phases."""
    held_out: Text = ""
    """What the task leaves out of training, in words."""
    overlap: Overlap | None = None
    """The training sequences that ask held-out questions, as the data or the model's configuration tell; None
    where neither does."""
    other_targets: OtherTargets | None = None
    """The training targets that are not those of the task; None where the training data are not known, or the
    task cannot tell."""
    by_symmetry: Accuracy | None = None
    """Accuracy on left-out questions that an answer blind to order gets right too, since the same in another
    order is trained on the same answer. They show no composition and are not in `ood`. None without any."""
    notes: Annotated[tuple[Text, ...], limits(max_length=100)] = ()
    """Remarks on what was measured, one line each."""

    def __post_init__(self) -> None:
        """Leave out what was measured if a logit was not finite: the largest of NaNs is no answer."""
        if not self.finite:
            object.__setattr__(self, "measures", dict.fromkeys(self.measures))
            object.__setattr__(self, "figure_specs", ())

    def measure(self, name: str) -> Accuracy | None:
        """The value of a metric with its standard error; None where it is not defined."""
        return self.measures.get(name)

    @property
    def train(self) -> Accuracy | None:
        """How well the training data are fit; None where that is not measured."""
        return self.measure("train")

    @property
    def id(self) -> Accuracy | None:
        """Accuracy on held-out data of the training distribution; None where that is not measured."""
        return self.measure("id")

    @property
    def ood(self) -> Accuracy | None:
        """Accuracy on what is left out of training; None if nothing is, or this is not measured."""
        return self.measure("ood")

    @property
    def train_is_known(self) -> bool:
        """Whether `train` was measured on the training data themselves."""
        return self.train_source == TRAINING_SET

    @property
    def assumption(self) -> str | None:
        """What the phase assumes about the training data, in a line; None where nothing is assumed."""
        if self.train_is_known or not has_labels(self.metrics):
            return None
        if self.overlap is not None:
            return f"the training data are unknown: train accuracy is measured on {self.train_source}"
        return (
            "the training data are unknown: the verdict assumes that the model was never trained on "
            f"{self.held_out}, and measures train accuracy on {self.train_source}"
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of the phase should know, one line each: notes, assumption, a few wrong labels."""
        other = self.other_targets
        few = [other.in_words()] if other and other.n_other and not other.of_another_task else []
        return (*self.notes, *filter(None, [self.assumption]), *few)

    @property
    def at_chance(self) -> str | None:
        """Why the answers give no evidence that the model was trained on the task; None if they do."""
        return None

    @property
    def phase(self) -> Phase:
        """The phase by definition, from the measures."""
        return self._named(None)

    def phase_if_clear(self) -> Phase:
        """The phase by definition, or `undecided: borderline`.

        If an accuracy that decides is within two standard errors of its threshold, there is no phase. If only
        commutativity is, it is Phase 2 with `commutative` None. For the standard errors see `Accuracy`.
        """
        return self._named(CLEAR)

    def _named(self, standard_errors: int | None) -> Phase:
        known = {metric.name: self.measure(metric.name) for metric in self.metrics}
        asks = {metric.name: metric.asks for metric in self.metrics}
        train, id = known.get("train"), known.get("id")
        if not self.finite and has_labels(self.metrics):
            return Phase.undecided("not finite", "the model's numbers are NaN or infinite")
        if known.keys() == {"train"}:
            return Phase.undecided(
                "not defined", "no held-out data were given, so only training accuracy is known"
            )
        if train is None or "id" not in known or (id is None and "ood" in known):
            return Phase.undecided(
                "not defined", "the phases are defined by train, ID and OOD accuracy, which this task lacks"
            )
        if (why := self._of_data(train, asks)) is not None:
            return why
        options: dict[str, Any] = {"train_source": self.train_source, "chance": self.chance}
        options["standard_errors"] = standard_errors
        if "ood" not in known or id is None:
            return learnt_by_definition(train, id, known.get("mirrored"), **options)
        phase = phase_by_definition(
            train,
            id,
            known["ood"],
            known.get("commutativity"),
            asked=(asks["id"] or "held-out data", asks["ood"] or "left-out data"),
            **options,
        )
        if phase.cause != "no unseen pair" or self.by_symmetry is None:
            return phase
        return Phase.undecided(
            "answered by symmetry",
            f"{asks['ood'] or 'left-out data'}: all of them are trained in another order on the same target, "
            f"and a model that ignores the order is also correct (accuracy {self.by_symmetry}); hold out "
            f"every order",
        )

    def _of_data(self, train: Accuracy, asks: Mapping[str, str]) -> Phase | None:
        """Why its training data rule every phase out; None if they do not."""
        other, overlap = self.other_targets, self.overlap
        if other is not None and other.of_another_task:
            return Phase.undecided("targets of another task", other.in_words())
        if overlap is not None and overlap.there_is_some:
            why = f"{overlap.in_words(asks)}; accuracy there does not test generalisation"
            return Phase.undecided("held-out questions were trained", why)
        if self.train_is_known and train.standard_error and train.n_sequences < FEWEST_TRAINED:
            n = f"{train.n_sequences} distinct sequence{'s' * (train.n_sequences > 1)}"
            why = f"train accuracy {train} is from {n}; give at least {FEWEST_TRAINED}"
            return Phase.undecided("too few training sequences", why)
        return None

    def rows(self) -> Iterator[tuple[str, Accuracy, str]]:
        """Title, value and meaning of every metric that was measured."""
        for metric in self.metrics:
            if (value := self.measure(metric.name)) is not None:
                unknown = metric.name == "train" and not self.train_is_known
                yield metric.title, value, metric.asks if unknown else metric.meaning

    def by_pair(self) -> Mapping[Any, Any]:
        """Pair of anchors -> its accuracy; empty for a task without anchors."""
        return {}

    def in_words(self) -> list[str]:
        """Findings that the table of its measures does not show, one per line."""
        return []

    def headline(self) -> dict[str, Any]:
        """The numbers that summarise it, JSON-ready: every measure (None: not defined) and the phase."""
        measures = {metric.name: self.measure(metric.name) for metric in self.metrics}
        values = {name: None if one is None else one.value for name, one in measures.items()}
        return {**values, "phase": self.phase.number, "label": self.phase.label}

    def __repr__(self) -> str:
        known = {metric.title: self.measure(metric.name) for metric in self.metrics if metric.in_tables}
        numbers = (f"{title} {one.value:.3f}" for title, one in known.items() if one is not None)
        return f"{type(self).__name__}({self.phase.label}; {', '.join(numbers)})"

    _repr_html_ = html
