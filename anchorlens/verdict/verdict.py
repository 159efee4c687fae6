"""The class `Verdict`, with the verdicts on one model, their agreement, and the classified model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import UNSTORED, Check, Count, Name, Plain, Record, Share, Text, limits
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import MEMORISATION, NOT_PROMISED, ORDER_ALONE, Phase
from anchorlens.views import html, report, summary

if TYPE_CHECKING:
    import pandas

    from anchorlens.files.checkpoint import Checkpoint
    from anchorlens.models.library import HookedTransformer
    from anchorlens.probes.shared.contract import ProbeResult
else:
    HookedTransformer = Checkpoint = ProbeResult = Any  # reading a stored verdict need not import them

LEAST_FACTOR = 1.1
"""The smallest factor at which a verdict shows a change in odds."""
MOST_PRINTED = 4
"""The largest number of readings that a verdict prints and explains."""
_LEAST_SHARE = 0.005
"""The smallest probability that is not written as 0%."""
SCHEMA_VERSION = 2
"""The version of the format of `to_dict`. The version increases by one when a key changes its meaning or is
removed."""


_BY_KIND = Check(lambda of: [of.PlainValidator(read_evaluation), of.PlainSerializer(Evaluation.to_dict)])
"""The check that loads an evaluation as the class for its kind of task."""


@frozen_dataclass()
class Evidence(Record):
    """One reading, with its ranges in the calibration and its contribution to the verdict."""

    reading: Name
    """The name `probe.field`, for example `v_similarity.centred_gap`."""
    probe: Name
    """The probe of the reading."""
    meaning: Text
    """The meaning of the reading, in a few words."""
    value: float | None
    """The value of the reading, normalised for width and depth, or `None` if the probe has no value."""
    ranges: Mapping[Name, tuple[float, float]]
    """The range of the middle 80% of the fitted checkpoints with each label. For the ratio of `holdout`, the
    range is the range that determines the label."""
    vote: Name | None
    """The label whose odds the reading increases most, or `None` if no increase exceeds 0.05 nats. For the
    ratio of `holdout`, the vote is the label that the ratio determines."""
    weight: float
    """The increase in the log-odds of `vote`, in nats, at least 0."""
    odds: Mapping[Name, float] = field(default_factory=dict)
    """The change in the log-odds of each label due to this reading, in nats, with all other readings
    unchanged."""
    alone: Mapping[Name, float] = field(default_factory=dict)
    """The log-odds of yes to each question by this reading alone, in nats, before weighting."""
    sees: Name = "trained pairs"
    """The data that the probe measures, which are `trained pairs`, `training data`, `weights`, or `unseen
    pairs`, which have no vote."""


@frozen_dataclass(repr=False)
class ProbeVerdict(Record):
    """The probe verdict, which assigns a phase or solution from trained pairs and weights only.

    The probe verdict uses neither answers to unseen pairs nor activations of unseen pairs, so the verdict is
    independent evidence. For tasks without a calibrated phase, the probe verdict is the label `memorised` or
    `learnt a rule`, without probabilities.
    """

    unstored: ClassVar[tuple[str, ...]] = ("measured",)
    phase: Phase
    """The most probable phase or solution, or the reason why the verdict is undecided."""
    probabilities: Mapping[Name, Share] | None
    """The probability of each phase or solution, from 0 to 1, with the sum 1. The value is `None` if the
    probes could not take readings."""
    evidence: Annotated[tuple[Evidence, ...], limits(max_length=200)] = ()
    """The readings, the largest contribution first. Readings of unseen pairs have no vote. For a task without
    anchors, the readings are those of `holdout` and of the weights. The ratio of `holdout` determines the
    label. The readings of the weights are not evidence for a label."""
    outside: Annotated[tuple[Text, ...], limits(max_length=100)] = ()
    """The descriptions of the fields of the model or its task that are outside the calibration range. Each of
    these fields makes the probabilities less extreme."""
    not_measured: Annotated[tuple[Name, ...], limits(max_length=100)] = ()
    """The costly probes that were not applied, although their readings have a weight."""
    measured: Annotated[Mapping[Callable[..., Any], ProbeResult], UNSTORED] = field(
        default_factory=dict, compare=False
    )
    """The results of the probes whose plots show the evidence of the verdict."""

    @property
    def strongest(self) -> tuple[Evidence, ...]:
        """At most four readings to print, each of which raises the odds of a label by at least a tenth."""
        return tuple(one for one in self.evidence if one.weight >= math.log(LEAST_FACTOR))[:MOST_PRINTED]

    @property
    def note(self) -> str:
        """The text `, outside the calibration`, which is empty inside the calibration range."""
        return ", outside the calibration" if self.outside else ""

    def __repr__(self) -> str:
        return f"ProbeVerdict({self.phase.label}; {self.in_words() or self.phase.reason}{self.note})"

    def in_words(self) -> str:
        """Return the two most probable phases as text, for example `Phase 3, 55%; Phase 1, 40%`."""
        return in_words(self.probabilities or {})

    _repr_html_ = html


@frozen_dataclass()
class TrajectoryPoint(Record):
    """One checkpoint along a run."""

    step: Count
    """The number of optimiser steps."""
    fraction: float
    """The fraction of the run's steps, from 0 to 1."""
    train: Share
    """The accuracy on training data, from 0 to 1."""
    id: Share
    """The accuracy on held-out keys, from 0 to 1."""
    ood: Share | None
    """The accuracy on unseen pairs, from 0 to 1, or `None` if every pair is trained."""
    now: Name
    """The label of the current phase by behaviour, such as `Phase 1` or `undecided: underfit`."""

    def __repr__(self) -> str:
        ood = "" if self.ood is None else f", OOD {self.ood:.2f}"
        numbers = f"train {self.train:.2f}, ID {self.id:.2f}{ood}"
        run = f"step {self.step:,}, {self.fraction:.1%} of the run"
        return f"TrajectoryPoint({run}: {self.now}; {numbers})"


@frozen_dataclass(eq=False)
class ClassifiedModel(Record):
    """The classified model. A verdict loaded from JSON has only a description of the model."""

    unstored: ClassVar[tuple[str, ...]] = ("model", "task", "checkpoint", "log", "measured")
    name: Text
    """The displayed name of the model, such as `runs/a` for a folder, or the name of a file."""
    kind: Name = "model"
    """The format of the file, such as `anchorlens` or `released code`, or `model` for a model in memory."""
    path: Text | None = None
    """The path of the file or folder, as the caller gave it."""
    sha256: Name | None = None
    """The SHA-256 of the file with the weights."""
    step: Count | None = None
    """The number of optimiser steps, or `None` if the number is unknown."""
    model_config: Plain | None = None
    """The architecture of a checkpoint, as JSON data."""
    train_config: Plain | None = None
    """The training recipe of a checkpoint, as JSON data, or `None` if the recipe is unknown."""
    versions: Mapping[Name, Name] | None = None
    """The version of each library that wrote a checkpoint."""
    model: Annotated[HookedTransformer | None, UNSTORED] = None
    """The model, for figures, or `None` in a verdict loaded from JSON."""
    task: Annotated[Task | None, UNSTORED] = None
    """The task of the model, or `None` in a verdict loaded from JSON."""
    checkpoint: Annotated[Checkpoint | None, UNSTORED] = None
    """The checkpoint with weights, configurations and versions. The checkpoint is `None` for a model in
    memory, and in a verdict loaded from JSON."""
    log: Annotated[Sequence[Mapping[str, Any]], UNSTORED] = ()
    """The log lines of the run, if available, with `step`, `loss` and accuracies."""
    measured: Annotated[dict[Callable[..., Any], ProbeResult], UNSTORED] = field(default_factory=dict)
    """The result of each probe for the model, so that a probe measures only once."""

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, task: Task, model: HookedTransformer, **fields: object
    ) -> ClassifiedModel:
        """Build the subject of a checkpoint. The given fields replace the fields of the checkpoint."""
        known = {
            "name": repr(checkpoint),
            "step": checkpoint.step,
            "model_config": checkpoint.model_config.to_dict(),
            "train_config": None if checkpoint.train_config is None else checkpoint.train_config.to_dict(),
            "versions": dict(checkpoint.versions),
        }
        return cls(**{**known, **fields}, model=model, task=task, checkpoint=checkpoint)

    def __repr__(self) -> str:
        return f"ClassifiedModel({self.name}, {self.kind})"

    def model_and_task(self) -> tuple[HookedTransformer, Any]:
        """Return the model and its task.

        Raises:
            ValueError: If the verdict was loaded from JSON. The JSON data do not contain the model.
        """
        if self.model is None or self.task is None:
            raise ValueError(
                f"the verdict must contain its model, got a verdict loaded from JSON ({self.name}). Classify "
                "the checkpoint again"
            )
        return self.model, self.task

    def measure(self, probe: Callable[..., ProbeResult]) -> ProbeResult:
        """Return the result of a probe on the model with default options.

        The subject stores the result, so that each probe measures the model only once.

        Raises:
            ValueError: If the probe refuses the model or its task.
            ValueError: If the verdict was loaded from JSON.
        """
        if probe not in self.measured:
            from anchorlens.files.loaded_model import LoadedModel
            from anchorlens.probes.registry import apply

            model, task = self.model_and_task()
            self.measured[probe] = apply(probe, LoadedModel(self.checkpoint, task, in_memory=model))
        return self.measured[probe]


@frozen_dataclass(eq=False)
class Verdict(Record):
    """The probe and behavioural verdicts, which assign Phase 1, 2 or 3 with reasons.

    If the training data conflict with the composition, the verdicts assign a solution instead of a phase. For
    tasks without a calibrated phase, the probe verdict states whether the model memorised its training data
    or learnt a rule.
    """

    derived: ClassVar[tuple[str, ...]] = ("schema_version",)
    schema_version: ClassVar[int] = SCHEMA_VERSION
    phase: Phase
    """The phase by behaviour, which is the definition of the phase. The phase is `undecided` if an accuracy
    is within two standard errors of a threshold."""
    by_probes: ProbeVerdict
    """The probe verdict, which uses trained pairs and weights, and does not use unseen pairs."""
    behaviour: Annotated[Evaluation, _BY_KIND]
    """The `Evaluation` of the task, with all measurements of the model's answers."""
    agreement: bool | None
    """Whether the behavioural and probe verdicts assign the same phase or solution. The agreement is `None`
    if a verdict is undecided, or if the probe verdict cannot distinguish two phases."""
    explanation: Text
    """The explanation of the agreement or disagreement."""
    warnings: Annotated[tuple[Text, ...], limits(max_length=100)]
    """The caveats of the verdict."""
    subject: ClassifiedModel = field(repr=False)
    """The classified model."""
    trajectory: Annotated[tuple[TrajectoryPoint, ...], limits(max_length=10_000)] = ()
    """The checkpoints of a run's folder. The tuple is empty for other inputs."""
    course: Text = ""
    """Whether a run of a task without phases grokked: when it fit, when it generalised, what the probes of
    this task name, such as the key frequencies of `fourier`, and which operation an importer found. The text
    is empty for other runs."""

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        probes: Sequence[Callable[..., ProbeResult] | str] | None = None,
    ) -> None:
        """Write the report as one HTML page. The page works offline.

        Args:
            path: the path of the page, with the suffix `.html`. `report` replaces an existing file.
            probes: the probes whose figures the report shows. The report also shows `holdout` if the verdict
                is based on `holdout`. Default: `probes.REPORT_PROBES`, which contains all probes that do not
                train a model. `(*REPORT_PROBES, my_probe)` adds your own probe.

        Raises:
            ValueError: If `probes` contains an invalid probe, or two probes with the same name.
            ValueError: If the verdict was loaded from JSON without its model.
            ValueError: If the path has a suffix other than `.html`, or its folder is missing.
            ValueError: If the path is not an ordinary file, or is the path of the checkpoint.
            OSError: If the write fails. A failed write does not change an existing file.
        """
        report([self], path, **({} if probes is None else {"probes": probes}))

    @property
    def finding(self) -> Phase:
        """The phase or label by behaviour, or by the probes if the task defines no behavioural phase."""
        inside = self.by_probes.phase
        return inside if self.phase.cause == "not defined" and inside.is_named else self.phase

    @property
    def headline(self) -> str:
        """The label of `finding`, with the accuracy on held-out data or with what the label does not say."""
        fresh, inside = self.behaviour.measures.get("held_out"), self.by_probes.phase
        if fresh is not None:
            return f"{self.finding.label}, accuracy {fresh.value:.2f} on held-out data"
        if not self.phase.is_named and ORDER_ALONE in inside.reason:
            return f"{inside.label}; it {ORDER_ALONE}"
        learnt = self.finding.solution == MEMORISATION[1]
        return f"{self.finding.label}; {NOT_PROMISED}" if learnt else self.finding.label

    @property
    def readings(self) -> pandas.DataFrame:
        """The table of `by_probes.evidence`, with a row for each reading and the reading's name as index.

        The columns are `probe`, `sees`, `meaning`, `value`, `vote` and `weight` (nats). Each label has three
        more columns, such as `odds Phase 1` (nats), `low Phase 1` and `high Phase 1`. The columns `low` and
        `high` contain the range of the middle 80% of the calibration models with the label.
        """
        import pandas

        rows = []
        for one in self.by_probes.evidence:
            ranges = {}
            for label, (low, high) in one.ranges.items():
                ranges |= {f"low {label}": low, f"high {label}": high}
            odds = {f"odds {label}": value for label, value in one.odds.items()}
            names = ("reading", "probe", "sees", "meaning", "value", "vote", "weight")
            rows.append({name: getattr(one, name) for name in names} | odds | ranges)
        columns = None if rows else ["reading", "value"]
        return pandas.DataFrame(rows, columns=columns).astype({"value": float}).set_index("reading")

    def summary(self, path: str | os.PathLike[str]) -> None:
        """Write the summary as one portrait A4 page for an appendix or a slide.

        Args:
            path: the path of the file, with the suffix `.pdf`, `.svg` or `.png`. `summary` replaces an
                existing file.

        Raises:
            ValueError: If the verdict was loaded from JSON without its model.
            ValueError: If matplotlib (the extra `export`) is not installed.
            ValueError: If the suffix of the path is not `.pdf`, `.svg` or `.png`, or its folder is missing.
            ValueError: If the path is not an ordinary file, or is the path of the checkpoint.
            OSError: If the write fails. A failed write does not change an existing file.
        """
        summary([self], path)

    def __repr__(self) -> str:
        agreement = {True: ", agrees", False: ", disagrees", None: ""}[self.agreement]
        n_warnings, fresh = len(self.warnings), "held_out" in self.behaviour.measures
        warned = f"; {n_warnings} warning{'s' if n_warnings > 1 else ''}" if n_warnings else ""
        return (
            f"Verdict({self.subject.name}: {self.headline if fresh else self.phase.label}; "
            f"by the probes: {self.by_probes.phase.label}{self.by_probes.note}{agreement}{warned})"
        )

    _repr_html_ = html


def in_words(probabilities: Mapping[str, float]) -> str:
    """Return the two most probable phases or solutions as text, each sum with its parts.

    >>> in_words({"Phase 3": 0.55, "Phase 1": 0.05, "Phase 2 with commutativity": 0.4})
    'Phase 3, 55%; Phase 2 with commutativity, 40%'
    >>> in_words({"Phase 2 without commutativity": 0.4, "Phase 2 with commutativity": 0.35, "Phase 3": 0.25})
    'Phase 2, 75% (without commutativity 40%, with commutativity 35%); Phase 3, 25%'
    """
    forms: dict[str, dict[str, float]] = {}
    shown = ((label, share) for label, share in probabilities.items() if share >= _LEAST_SHARE)
    for label, share in sorted(shown, key=lambda item: -item[1]):
        forms.setdefault(label[: len("Phase 2")] if label.startswith("Phase 2") else label, {})[label] = share
    phases = sorted(forms.items(), key=lambda item: -sum(item[1].values()))
    texts = []
    for phase, parts in phases[:2]:
        if len(parts) == 1:
            texts += (f"{label}, {100 * share:.0f}%" for label, share in parts.items())
            continue
        names = (f"{label.removeprefix(phase).strip()} {100 * share:.0f}%" for label, share in parts.items())
        texts.append(f"{phase}, {100 * sum(parts.values()):.0f}% ({', '.join(names)})")
    return "; ".join(texts)
