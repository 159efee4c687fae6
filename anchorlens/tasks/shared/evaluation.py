"""The evaluation of a model on a task: the metrics, and the phase that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import UNSTORED, Name, Plain, Record, Share, Text, limits
from anchorlens.tasks.shared import phases
from anchorlens.tasks.shared.data_checks import OtherTargets, Overlap
from anchorlens.tasks.shared.figure_specs import FigureSpec
from anchorlens.tasks.shared.measures import Accuracy, Metric, has_labels
from anchorlens.tasks.shared.phases import TRAINING_SET, Phase
from anchorlens.views import html


@frozen_dataclass(eq=False, repr=False)
class Evaluation(Record):
    """The evaluation of a model on a task, with metrics, standard errors, figures as data, and a phase."""

    derived: ClassVar[tuple[str, ...]] = ("phase",)
    unstored: ClassVar[tuple[str, ...]] = ("metrics",)
    drawn_at_random: ClassVar[str] = "sampled test inputs, 0 if all were tested"
    """The random choice that the standard errors cover, in words."""
    kind: Name
    """The kind of the task, such as `two_anchor` or `scan`."""
    metrics: Annotated[tuple[Metric, ...], UNSTORED]
    """The metrics of the task."""
    measures: Mapping[Name, Accuracy | None]
    """The value of each metric with its standard error; None if the metric is not defined or a logit was not
    finite."""
    finite: bool
    """Whether every logit was finite. If not, nothing is measured and there is no phase."""
    options: Plain = field(default_factory=dict)
    """The settings of the evaluation: the seed, and the task in words."""
    figure_specs: Annotated[Sequence[FigureSpec], limits(max_length=20)] = ()
    """The figures of the answers, as data."""
    train_source: Name = TRAINING_SET
    """The data on which `train` was measured: `training set`, or the substitute for an unknown training
    set."""
    chance: Share = 0.0
    """The accuracy of random answers, if that is not small: 0.5 for one of two labels. The chance level moves
    the thresholds of the phases."""
    held_out: Text = ""
    """The data that the task holds out of training, in words."""
    overlap: Overlap | None = None
    """The number of training sequences that are held-out test inputs, from the data or the model's
    configuration; None if neither is known."""
    other_targets: OtherTargets | None = None
    """The number of training targets that differ from the task's targets; None if the training data are
    unknown or the task does not determine targets."""
    by_symmetry: Accuracy | None = None
    """The accuracy on held-out inputs that are trained in another order on the same target. A model that
    ignores the order answers these inputs correctly, so they do not test composition and `ood` excludes them.
    None if the task has no input of this kind."""
    notes: Annotated[tuple[Text, ...], limits(max_length=100)] = ()
    """Remarks on the measurement, one line each."""

    def __post_init__(self) -> None:
        """Remove every measure if a logit was not finite, because the largest of NaNs is not an answer."""
        if not self.finite:
            object.__setattr__(self, "measures", dict.fromkeys(self.measures))
            object.__setattr__(self, "figure_specs", ())

    def measure(self, name: str) -> Accuracy | None:
        """Return the value of a metric with its standard error, or None if the metric is not defined."""
        return self.measures.get(name)

    @property
    def train(self) -> Accuracy | None:
        """The accuracy or other metric on the training data, or None if the metric was not measured."""
        return self.measure("train")

    @property
    def id(self) -> Accuracy | None:
        """The accuracy on held-out data of the training distribution, or None if it was not measured."""
        return self.measure("id")

    @property
    def ood(self) -> Accuracy | None:
        """The accuracy on out-of-distribution data, or None if it is not defined or was not measured."""
        return self.measure("ood")

    @property
    def train_is_known(self) -> bool:
        """Whether `train` was measured on the training data."""
        return self.train_source == TRAINING_SET

    @property
    def assumption(self) -> str | None:
        """The assumption that the phase makes about the training data, or None if it makes no assumption."""
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
        """The caveats of the phase, one line each: notes, the assumption, and the number of wrong labels."""
        other = self.other_targets
        few = [other.in_words()] if other and other.n_other and not other.of_another_task else []
        return (*self.notes, *filter(None, [self.assumption]), *few)

    @property
    def at_chance(self) -> str | None:
        """The reason why the answers are not evidence of training on the task, or None without a reason."""
        return None

    @property
    def phase(self) -> Phase:
        """The phase that the measures define, regardless of their standard errors."""
        return self._named(None)

    def phase_if_clear(self) -> Phase:
        """Return the phase, or an undecided result if an accuracy is too close to its threshold.

        If a deciding accuracy is within two standard errors of its threshold, the phase is undecided. If only
        commutativity is within two standard errors of its threshold, the phase is Phase 2 and `commutative`
        is None. `Accuracy` defines the standard errors.
        """
        return self._named(phases.CLEAR)

    def _named(self, standard_errors: int | None) -> Phase:
        known = {metric.name: self.measure(metric.name) for metric in self.metrics}
        asks = {metric.name: metric.asks for metric in self.metrics}
        train, id = known.get("train"), known.get("id", known.get("held_out"))
        if not self.finite and has_labels(self.metrics):
            return Phase.undecided("not finite", "the model's numbers are NaN or infinite")
        if known.keys() == {"train"}:
            why = "no held-out data were given, so only training accuracy is known"
            return Phase.undecided("not defined", why)
        if train is None or not {"id", "held_out"} & known.keys() or (id is None and "ood" in known):
            why = "the phases are defined by train, ID and OOD accuracy, which this task lacks"
            return Phase.undecided("not defined", why)
        if (problem := self._of_data(train, asks)) is not None:
            return problem
        options: dict[str, Any] = {"train_source": self.train_source, "chance": self.chance}
        options["standard_errors"] = standard_errors
        if "ood" not in known or id is None:
            options["in_part"] = "held_out" in known
            mirrored = known.get("mirrored")
            if mirrored is not None and mirrored.n_sequences < phases.FEWEST_TRAINED:
                mirrored = None
            phase = phases.learnt_by_definition(train, id, mirrored, **options)
            return self._beyond_symmetry(phase, id) if phase.solution == phases.LEARNT[2] and id else phase
        phase = phases.phase_by_definition(
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

    def _beyond_symmetry(self, phase: Phase, id: Accuracy) -> Phase:
        """Return the label `generalises` only if held-out inputs that symmetry does not answer show it."""
        of = self.by_symmetry or Accuracy(0.0, 0.0, 0)
        n = id.n_sequences - of.n_sequences
        if n < phases.FEWEST_TRAINED:
            beyond = " are not trained in another order on the same target" if of.n_sequences else ""
            return Phase.undecided(
                "answered by symmetry" if of.n_sequences else "borderline",
                f"only {n} held-out inputs{beyond}, and at least {phases.FEWEST_TRAINED} are needed; hold "
                "out more, in every order",
            )
        rest = (id.value * id.n_sequences - of.value * of.n_sequences) / n
        if rest >= self.chance + (1 - self.chance) * phases.ID_THRESHOLD:
            return phase
        reason = f"{phase.reason.partition(':')[0]}, without a trained mirror {rest:.3f}"
        learnt = phases.LEARNT[1]
        return Phase(None, None, f"{reason}: it {phases.SOLUTION_GLOSS[learnt]}", solution=learnt)

    def _of_data(self, train: Accuracy, asks: Mapping[str, str]) -> Phase | None:
        """Return the reason why the training data rule out every phase; None if they do not."""
        other, overlap = self.other_targets, self.overlap
        if other is not None and other.of_another_task:
            return Phase.undecided("targets of another task", other.in_words())
        if overlap is not None and overlap.there_is_some:
            why = f"{overlap.in_words(asks)}; accuracy there does not test generalisation"
            return Phase.undecided("held-out questions were trained", why)
        if self.train_is_known and train.n_sequences < phases.FEWEST_TRAINED:
            n = f"{train.n_sequences} distinct sequence{'s' * (train.n_sequences > 1)}"
            why = f"train accuracy {train} is from {n}; give at least {phases.FEWEST_TRAINED}"
            return Phase.undecided("too few training sequences", why)
        return None

    def rows(self) -> Iterator[tuple[str, Accuracy, str]]:
        """Yield the title, the value and the meaning of every metric that was measured."""
        for metric in self.metrics:
            if (value := self.measure(metric.name)) is not None:
                unknown = metric.name == "train" and not self.train_is_known
                yield metric.title, value, metric.asks if unknown else metric.meaning

    def by_pair(self) -> Mapping[Any, Any]:
        """Return the accuracy on each pair of anchors, or an empty mapping for a task without anchors."""
        return {}

    def in_words(self) -> list[str]:
        """Return the findings that the table of measures does not show, one per line."""
        return []

    def headline(self) -> dict[str, Any]:
        """Return every measure and the phase as JSON data. The value of an undefined measure is None."""
        measures = {metric.name: self.measure(metric.name) for metric in self.metrics}
        values = {name: None if one is None else one.value for name, one in measures.items()}
        return {**values, "phase": self.phase.number, "label": self.phase.label}

    def __repr__(self) -> str:
        known = {metric.title: self.measure(metric.name) for metric in self.metrics if metric.in_tables}
        numbers = (f"{title} {one.value:.3f}" for title, one in known.items() if one is not None)
        return f"{type(self).__name__}({self.phase.label}; {', '.join(numbers)})"

    _repr_html_ = html
