"""`Verdict`: the verdicts on one model, whether behaviour and probes agree, and the model they are about."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from anchorlens.configuration import documented
from anchorlens.records import UNSTORED, Check, Count, Name, Plain, Record, Share, Text, limits, refusing
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import Phase
from anchorlens.views import html, report, summary

if TYPE_CHECKING:
    import pandas

    from anchorlens.files.checkpoint import Checkpoint
    from anchorlens.models.library import HookedTransformer
    from anchorlens.probes.shared.result import ProbeResult
else:
    HookedTransformer = Checkpoint = ProbeResult = Any  # reading a stored verdict need not import them

LEAST_FACTOR = 1.1
"""Smaller changes of odds are not shown."""
MOST_PRINTED = 5
"""Largest number of readings that are printed and explained."""
SCHEMA_VERSION = 1
"""Version of `to_dict`; it grows by one when a key changes its meaning or is removed."""


_BY_KIND = Check(
    lambda of: [of.PlainValidator(refusing(read_evaluation)), of.PlainSerializer(Evaluation.to_dict)]
)
"""An evaluation is read as the class of its kind of task."""


@documented
@dataclass(frozen=True)
class Evidence(Record):
    """One reading, its ranges in the calibration, and its contribution to the verdict."""

    reading: Name
    """`probe.field`, for example `v_similarity.centred_gap`."""
    probe: Name
    """The probe it comes from."""
    meaning: Text
    """What the number is, in a few words."""
    value: float | None
    """The reading, normalised for width and depth; None if the probe gives none."""
    ranges: Mapping[Name, tuple[float, float]]
    """Label -> range of the middle 80% of the checkpoints of that phase on which the verdict was fit; of the
    ratio of `holdout`, the range for which the label is given."""
    vote: Name | None
    """The label whose odds it raises most; None if it raises none by more than .05 nats. For the ratio of
    `holdout`, the label that it decides."""
    weight: float
    """The increase of that label's log-odds, in nats, >= 0."""
    odds: Mapping[Name, float] = field(default_factory=dict)
    """Label -> change of its log-odds due to this reading, in nats, all other readings unchanged."""
    alone: Mapping[Name, float] = field(default_factory=dict)
    """Question -> log-odds of yes by this reading alone, before weighting, in nats."""
    sees: Name = "trained pairs"
    """What it is measured on: `trained pairs`, `training data` or `weights`."""


@documented
@dataclass(frozen=True)
class Posterior(Record):
    """The most probable phase, and the probabilities of all."""

    phase: Phase
    """The most probable phase or solution, or the reason why there is none."""
    probabilities: Mapping[Name, Share] | None
    """Label of a phase or solution -> probability, 0..1, sum 1; None if the readings could not be taken."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.phase.label}; {self.in_words() or self.phase.reason})"

    def in_words(self) -> str:
        """The most probable label and its runner-up: `Phase 3, 55%; Phase 2 with commutativity, 40%`."""
        return in_words(self.probabilities or {})


@documented
@dataclass(frozen=True, repr=False)
class ByProbes(Posterior):
    """The phase (in `conflict` the solution) by the probes, from trained pairs and weights only.

    It uses nothing of unseen pairs, neither answers nor activations, and so is independent evidence. Where no
    phase is calibrated, it is the label `memorised` or `learnt a rule`, without probabilities.
    """

    evidence: Annotated[tuple[Evidence, ...], limits(max_length=200)] = ()
    """Every reading, the one with the largest contribution first; for a task without anchors those of
    `holdout`, of which the ratio decides, and those of the weights, which support no label."""
    outside: Annotated[tuple[Text, ...], limits(max_length=100)] = ()
    """Fields of the model or its task that are outside the range on which the verdict was fit, in words; each
    makes the probabilities less extreme."""
    not_measured: Annotated[tuple[Name, ...], limits(max_length=100)] = ()
    """Probes that were not measured, because their readings could not change the phase."""

    @property
    def strongest(self) -> tuple[Evidence, ...]:
        """The readings that are printed: at most five that raise the odds of a phase by a tenth or more."""
        return tuple(one for one in self.evidence if one.weight >= math.log(LEAST_FACTOR))[:MOST_PRINTED]

    def __repr__(self) -> str:
        return super().__repr__().removesuffix(")") + self.note + ")"

    @property
    def note(self) -> str:
        """`, outside the calibration` if it is, to follow a phase; else empty."""
        return ", outside the calibration" if self.outside else ""

    _repr_html_ = html


@documented
@dataclass(frozen=True)
class TrajectoryPoint(Record):
    """One checkpoint along a run, and the forecast of the run's final phase."""

    derived: ClassVar[tuple[str, ...]] = ("expected",)
    step: Count
    """Optimizer steps taken."""
    fraction: float
    """Share of the run's steps that are taken, 0..1."""
    train: Share
    """Accuracy on training data, 0..1."""
    id: Share
    """Accuracy on held-out keys, 0..1."""
    ood: Share | None
    """Accuracy on unseen pairs, 0..1; None if every pair is trained."""
    now: Name
    """Its phase by behaviour now, a label such as `Phase 1` or `undecided: underfit`."""
    forecast: Mapping[Name, Share] | None
    """Label of the final phase, or `undecided`, -> probability, from readings and the current phase. None if
    there is no early verdict: for a fraction that was not calibrated, or for a task other than the
    papers'."""

    @property
    def expected(self) -> str | None:
        """The most probable label; None without a forecast."""
        return None if self.forecast is None else max(self.forecast, key=self.forecast.__getitem__)

    def __repr__(self) -> str:
        ood = "" if self.ood is None else f", OOD {self.ood:.2f}"
        expected = "no forecast"
        if self.forecast is not None and self.expected is not None:
            expected = f"forecast {self.expected} ({self.forecast[self.expected]:.2f})"
        numbers = f"train {self.train:.2f}, ID {self.id:.2f}{ood}"
        run = f"step {self.step:,}, {self.fraction:.1%} of the run"
        return f"TrajectoryPoint({run}: {self.now}; {numbers}; {expected})"


@documented
@dataclass(frozen=True, eq=False)
class Subject(Record):
    """The classified model; in a verdict that was read back, its description without the model."""

    unstored: ClassVar[tuple[str, ...]] = ("model", "task", "checkpoint", "log", "measured")
    name: Text
    """Its name for people: `runs/a` for a folder, the name of a file, or that of the model."""
    kind: Name = "model"
    """Format it was read from: `anchorlens`, `released code`, ..., or `model`."""
    path: Text | None = None
    """File or folder, as given."""
    sha256: Name | None = None
    """SHA-256 of the file with the weights."""
    step: Count | None = None
    """Optimizer steps taken, if known."""
    model_config: Plain | None = None
    """Architecture of a checkpoint, as JSON data."""
    train_config: Plain | None = None
    """Training recipe of a checkpoint, as JSON data, if known."""
    versions: Mapping[Name, Name] | None = None
    """Library -> version that wrote a checkpoint."""
    model: Annotated[HookedTransformer | None, UNSTORED] = None
    """The model, for figures; None in a verdict that was read back."""
    task: Annotated[Task | None, UNSTORED] = None
    """What it was trained on; None in a verdict that was read back."""
    checkpoint: Annotated[Checkpoint | None, UNSTORED] = None
    """The checkpoint (weights, configurations, versions), if there is one and the verdict was not read
    back."""
    log: Annotated[Sequence[Mapping[str, Any]], UNSTORED] = ()
    """Log lines of its run, if they are available: `step`, `loss`, accuracies."""
    measured: Annotated[dict[Callable[..., Any], ProbeResult], UNSTORED] = field(default_factory=dict)
    """Probe -> what it measured of the model; nothing is measured twice."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, task: Task, model: HookedTransformer, **fields: object) -> Subject:
        """A model from a checkpoint; given fields override those of the checkpoint."""
        known = {
            "name": repr(checkpoint),
            "step": checkpoint.step,
            "model_config": checkpoint.model_config.to_dict(),
            "train_config": None if checkpoint.train_config is None else checkpoint.train_config.to_dict(),
            "versions": dict(checkpoint.versions),
        }
        return cls(**{**known, **fields}, model=model, task=task, checkpoint=checkpoint)

    def __repr__(self) -> str:
        return f"Subject({self.name}, {self.kind})"

    def model_and_task(self) -> tuple[HookedTransformer, Any]:
        """The model and what it was trained on.

        Raises:
            ValueError: the verdict was read back, and the model did not travel with it.
        """
        if self.model is None or self.task is None:
            raise ValueError(
                f"a verdict with its model is needed, got one read back without it ({self.name}); classify "
                "the checkpoint again"
            )
        return self.model, self.task

    def measure(self, probe: Callable[..., ProbeResult]) -> ProbeResult:
        """The result of a probe on the model, with the probe's default options; it is measured only once.

        Raises:
            ValueError: the probe refuses the model or its task, or the verdict was read back.
        """
        if probe not in self.measured:
            from anchorlens.files.importers.inputs import Input
            from anchorlens.probes.registry import apply

            model, task = self.model_and_task()
            self.measured[probe] = apply(probe, Input(task, model, self.checkpoint))
        return self.measured[probe]


@documented
@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """Phase 1, 2 or 3 by the probes, by behaviour (the definition) and by decoding, with reasons.

    Where the training data conflict with the composition, the verdicts name a solution instead of a phase.
    Where no phase is calibrated, the probes say whether the model memorised its training data or learnt a
    rule.
    """

    derived: ClassVar[tuple[str, ...]] = ("schema_version",)
    schema_version: ClassVar[int] = SCHEMA_VERSION
    phase: Phase
    """The phase by behaviour, which is the definition; `undecided` if a number is within two standard errors
    of a threshold."""
    by_probes: ByProbes
    """The verdict from trained pairs and weights, without anything of unseen pairs."""
    by_decoding: Posterior
    """The verdict from activations of unseen pairs; it decodes the answer, and is not independent
    evidence."""
    behaviour: Annotated[Evaluation, _BY_KIND]
    """All measurements of its answers: the `Evaluation` of its task."""
    agreement: bool | None
    """Whether behaviour and probes name the same phase, or solution; None if one of them names none, or if
    the probes cannot tell two phases apart."""
    explanation: Text
    """What the agreement or disagreement means, in a sentence."""
    warnings: Annotated[tuple[Text, ...], limits(max_length=100)]
    """Caveats of the verdict."""
    subject: Subject = field(repr=False)
    """The classified model."""
    trajectory: Annotated[tuple[TrajectoryPoint, ...], limits(max_length=10_000)] = ()
    """For a run's folder: every checkpoint with its forecast."""

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        probes: Sequence[Callable[..., ProbeResult] | str] | None = None,
    ) -> None:
        """Write the report: one HTML page that needs no network.

        Args:
            path: of the page, .html; an existing file is replaced.
            probes: the probes whose figures it shows, besides `holdout` where the verdict is based on it; by
                default `probes.REPORT_PROBES`, all but those that train a model. `(*REPORT_PROBES, my_probe)`
                adds one of your own.

        Raises:
            ValueError: something other than probes, two of one name, a verdict that was read back and so has
                no model, another suffix, a missing folder, or a path that is no ordinary file or is the
                checkpoint.
            OSError: writing failed; an existing file is unchanged.
        """
        report(self, path, **({} if probes is None else {"probes": probes}))

    @property
    def finding(self) -> Phase:
        """The phase or label by behaviour, or by the probes if none is defined by behaviour."""
        inside = self.by_probes.phase
        return inside if self.phase.cause == "not defined" and inside.is_named else self.phase

    @property
    def readings(self) -> pandas.DataFrame:
        """`by_probes.evidence` as a table with a row for each reading, indexed by its name.

        Columns: `probe`, `sees`, `meaning`, `value`, `vote`, `weight` (nats), `odds <label>` (nats), and `low
        <label>` and `high <label>`, the range of the middle 80% of that phase.
        """
        import pandas

        rows = []
        for one in self.by_probes.evidence:
            ranges = {
                f"{end} {label}": value
                for label, both in one.ranges.items()
                for end, value in zip(("low", "high"), both, strict=True)
            }
            odds = {f"odds {label}": value for label, value in one.odds.items()}
            names = ("reading", "probe", "sees", "meaning", "value", "vote", "weight")
            rows.append({name: getattr(one, name) for name in names} | odds | ranges)
        columns = None if rows else ["reading", "value"]
        return pandas.DataFrame(rows, columns=columns).astype({"value": float}).set_index("reading")

    def summary(self, path: str | os.PathLike[str]) -> None:
        """Write the summary: one portrait A4 page, vector graphics, for a paper's appendix or a slide.

        Args:
            path: .pdf, .svg or .png; an existing file is replaced.

        Raises:
            ValueError: a verdict that was read back and so has no model, no matplotlib (the extra `export`),
                another suffix, a missing folder, or a path that is no ordinary file or is the checkpoint.
            OSError: writing failed; an existing file is unchanged.
        """
        summary(self, path)

    def __repr__(self) -> str:
        agreement = {True: ", agrees", False: ", disagrees", None: ""}[self.agreement]
        n_warnings = len(self.warnings)
        warned = f"; {n_warnings} warning{'s' if n_warnings > 1 else ''}" if n_warnings else ""
        return (
            f"Verdict({self.subject.name}: {self.phase.label}; "
            f"by the probes: {self.by_probes.phase.label}{self.by_probes.note}{agreement}{warned})"
        )

    _repr_html_ = html


def in_words(probabilities: Mapping[str, float]) -> str:
    """The most probable label and the next one.

    >>> in_words({"Phase 3": 0.55, "Phase 1": 0.05, "Phase 2 with commutativity": 0.4})
    'Phase 3, 55%; Phase 2 with commutativity, 40%'
    """
    first: Sequence[str] = sorted(probabilities, key=lambda label: -probabilities[label])[:2]
    return "; ".join(f"{label}, {100 * probabilities[label]:.0f}%" for label in first)
