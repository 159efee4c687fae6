"""The verdicts on one model, whether behaviour and probes agree, and what it was."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Len

from anchorlens.configuration import documented
from anchorlens.records import UNSTORED, Count, Name, Plain, Record, Share, Text, refusing
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import Phase
from anchorlens.views import html, report, summary

if TYPE_CHECKING:
    import pandas

    from anchorlens.files.checkpoint import Checkpoint
    from anchorlens.models.library import HookedTransformer
    from anchorlens.probes.result import ProbeResult
else:
    HookedTransformer = Checkpoint = Any  # which reading a verdict need not import

SCHEMA_VERSION = 1
"""Of `to_dict`; it grows by one when a key changes its meaning or goes."""


class _ByKind:
    """An evaluation is read as that of its kind of task."""

    def __get_pydantic_core_schema__(self, *_: Any) -> Any:
        from pydantic_core import core_schema

        writer = core_schema.plain_serializer_function_ser_schema(lambda evaluation: evaluation.to_dict())
        return core_schema.no_info_plain_validator_function(refusing(read_evaluation), serialization=writer)


@documented
@dataclass(frozen=True)
class Evidence(Record):
    """One reading, where it lies in each phase, and what it says."""

    reading: Name
    """`probe.field`, for example `v_similarity.centred_gap`."""
    probe: Name
    """The probe it comes from."""
    meaning: Text
    """What the number is, in a few words."""
    value: float | None
    """The reading, normalised so that width and depth do not show; None where the probe gives none."""
    ranges: Mapping[Name, tuple[float, float]]
    """Label -> where the middle 80 % of the checkpoints of that phase lie that the verdict was fit on."""
    vote: Name | None
    """The label whose odds it raises most; None where it raises none by more than .05 nats."""
    weight: float
    """By how much, in nats, >= 0."""
    odds: Mapping[Name, float] = field(default_factory=dict)
    """Label -> by how much it raises (above 0) or lowers its odds, in nats, all other readings as they
    are."""
    alone: Mapping[Name, float] = field(default_factory=dict)
    """Question -> the log-odds of yes that it speaks for by itself, whether that counts or not, in nats."""
    sees: Name = "trained pairs"
    """What it looks at: `trained pairs` or `weights`."""


@documented
@dataclass(frozen=True)
class Posterior(Record):
    """A phase with the probability of each."""

    phase: Phase
    """The most probable phase or solution, or why there is none."""
    probabilities: Mapping[Name, Share] | None
    """Label of a phase, or a solution -> 0..1, sum 1; None where the readings could not be taken."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.phase.label}; {self.in_words() or self.phase.reason})"

    def in_words(self) -> str:
        """The most probable label and its runner-up: `Phase 3, 55 %; Phase 2 with commutativity, 40 %`."""
        return in_words(self.probabilities or {})


@documented
@dataclass(frozen=True, repr=False)
class ByProbes(Posterior):
    """The phase, or in conflict the solution, that the probes speak for, by trained pairs and weights alone.

    It looks at nothing of unseen pairs, neither answers nor activations: it is independent evidence.
    """

    evidence: Annotated[tuple[Evidence, ...], Len(0, 200)] = ()
    """Every reading, the one that says most first; of another task what can be read of the weights, which
    speaks for no phase."""
    outside: Annotated[tuple[Text, ...], Len(0, 100)] = ()
    """What of the model or its task lies outside what the verdict was fit on, in words: each makes the
    probabilities less sure."""

    _repr_html_ = html


@documented
@dataclass(frozen=True)
class TrajectoryPoint(Record):
    """One checkpoint of a run's trajectory, and what it lets expect of the run's end."""

    derived: ClassVar[tuple[str, ...]] = ("expected",)
    step: Count
    """Optimizer steps taken."""
    fraction: float
    """Of the steps that the run is to take, 0..1."""
    train: Share
    """Accuracy on training data, 0..1."""
    id: Share
    """On held-out keys, 0..1."""
    ood: Share | None
    """On unseen pairs, 0..1; None where every pair is trained."""
    now: Name
    """Its phase by behaviour now, a label such as `Phase 1` or `undecided: underfit`."""
    forecast: Mapping[Name, Share] | None
    """Label of the final phase, or `undecided`, -> probability, from readings and the phase it has now;
    None where there is no early verdict: at other fractions than those calibrated, or for a task unlike the
    zoo's."""

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
    """What was classified; in a verdict that was read back, what is known of it without the model."""

    unstored: ClassVar[tuple[str, ...]] = ("model", "task", "checkpoint", "log")
    name: Text
    """What it is called, for people: `runs/a` for a folder, the name of a file, or that of the model."""
    kind: Name = "model"
    """Format it was read from: `anchorlens`, `released code`, ..., or `model`."""
    path: Text | None = None
    """File or folder, as given."""
    sha256: Name | None = None
    """Of the weights' file."""
    step: Count | None = None
    """Optimizer steps taken, as far as it is known."""
    model_config: Plain | None = None
    """Of a checkpoint: its architecture, as JSON data."""
    train_config: Plain | None = None
    """Of a checkpoint: how it was trained, as JSON data, where that is known."""
    versions: Mapping[Name, Name] | None = None
    """Of a checkpoint: library -> version that wrote it."""
    model: Annotated[HookedTransformer | None, UNSTORED] = None
    """The model, for pictures; None in a verdict that was read back."""
    task: Annotated[Task | None, UNSTORED] = None
    """What it was trained on; likewise."""
    checkpoint: Annotated[Checkpoint | None, UNSTORED] = None
    """Where it came from a checkpoint: weights, configurations, versions; likewise."""
    log: Annotated[Sequence[Mapping[str, Any]], UNSTORED] = ()
    """Log lines of its run, where its folder is there: `step`, `loss`, accuracies."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, task: Task, model: HookedTransformer, **fields: Any) -> Subject:
        """A model from a checkpoint; fields that are given go before what the checkpoint says."""
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
        """What a probe says of the model, with the probe's own options; it is measured once.

        Raises:
            ValueError: the probe refuses the model or its task, or the verdict was read back.
        """
        if probe not in self._results:
            from anchorlens.files.importers.inputs import Input
            from anchorlens.probes.registry import apply

            model, task = self.model_and_task()
            self._results[probe] = apply(probe, Input(task, model, self.checkpoint))
        return self._results[probe]

    @functools.cached_property
    def _results(self) -> dict[Callable[..., ProbeResult], ProbeResult]:
        return {}


@documented
@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """Phase 1, 2 or 3 by the probes, by behaviour (the definition) and by decoding, with reasons: data alone.

    Where the training data conflict with the composition it is a solution instead of a phase.
    """

    derived: ClassVar[tuple[str, ...]] = ("schema_version",)
    schema_version: ClassVar[int] = SCHEMA_VERSION
    phase: Phase
    """By behaviour, that is by definition, from what it answers; `undecided` where a number is within two
    standard errors of a threshold."""
    by_probes: ByProbes
    """What trained pairs and weights speak for, without anything of unseen pairs."""
    by_decoding: Posterior
    """What activations of unseen pairs speak for: it decodes the answer, and is not independent evidence."""
    behaviour: Annotated[Evaluation, _ByKind()]
    """Everything that was measured on answers: the `Evaluation` of its task."""
    agreement: bool | None
    """Whether behaviour and probes name the same phase, or solution; None where one of them names none."""
    explanation: Text
    """In a sentence: what the agreement, or the disagreement, means."""
    warnings: Annotated[tuple[Text, ...], Len(0, 100)]
    """What the reader should know before believing it."""
    subject: Subject = field(repr=False)
    """What was classified."""
    trajectory: Annotated[tuple[TrajectoryPoint, ...], Len(0, 10_000)] = ()
    """Of a run's folder: every checkpoint with what it lets expect of the end."""

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        probes: Sequence[Callable[..., ProbeResult] | str] | None = None,
    ) -> None:
        """Write the report: one HTML page that needs no network.

        Args:
            path: of the page, .html; a file that is there is replaced.
            probes: whose pictures it shows; by default `probes.REPORT_PROBES`, all but those that
                train a model. `(*REPORT_PROBES, my_probe)` adds one of your own.

        Raises:
            ValueError: something else than probes, two of one name, a verdict that was read back, whose
                model is not there to be drawn, or no place for a page: another suffix, no such folder, or
                what is there is no ordinary file or is the checkpoint.
            OSError: the disk refuses; a file that was there before is untouched.
        """
        report(self, path, **({} if probes is None else {"probes": probes}))

    @property
    def readings(self) -> pandas.DataFrame:
        """A row for each reading by the probes, by its name: `by_probes.evidence` as a table.

        Columns: `probe`, `sees`, `meaning`, `value`, `vote`, `weight` (nats), `odds <label>` (nats), and `low
        <label>` and `high <label>`, between which the middle 80 % of that phase lie.
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
        """Write the summary: one upright A4 page of vectors for a paper's appendix or a slide.

        Args:
            path: .pdf, .svg or .png; a file that is there is replaced.

        Raises:
            ValueError: a verdict that was read back, whose model is not there to be drawn, no matplotlib (the
                extra `export`), or no place for it: another suffix, no such folder, or what is there is no
                ordinary file or is the checkpoint.
            OSError: the disk refuses; a file that was there before is untouched.
        """
        summary(self, path)

    def __repr__(self) -> str:
        agreement = {True: ", the same", False: ", another", None: ""}[self.agreement]
        return (
            f"Verdict({self.subject.name}: {self.phase.label}; "
            f"by the probes: {self.by_probes.phase.label}{agreement})"
        )

    _repr_html_ = html


def in_words(probabilities: Mapping[str, float]) -> str:
    """The most probable label and the next one.

    >>> in_words({"Phase 3": 0.55, "Phase 1": 0.05, "Phase 2 with commutativity": 0.4})
    'Phase 3, 55 %; Phase 2 with commutativity, 40 %'
    """
    first: Sequence[str] = sorted(probabilities, key=lambda label: -probabilities[label])[:2]
    return "; ".join(f"{label}, {100 * probabilities[label]:.0f} %" for label in first)
