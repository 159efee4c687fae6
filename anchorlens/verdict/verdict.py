"""Both verdicts on one model, whether they agree, and what it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import documented
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.probes.registry import PROBES
from anchorlens.probes.result import ProbeResult
from anchorlens.tasks.kinds import task_class
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation, Measured
from anchorlens.tasks.shared.phases import Phase
from anchorlens.tasks.two_anchor.behaviour import Behaviour
from anchorlens.verdict.forecast import TrajectoryPoint
from anchorlens.verdict.mechanism import Mechanism
from anchorlens.views import html, report

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

SCHEMA_VERSION = 1
"""Of `to_dict`; it grows by one when a key changes its meaning or goes."""
_FACTS = ("step", "model", "train", "versions")


@documented
@dataclass(frozen=True, eq=False)
class Subject:
    """What was classified; in a verdict that was read back, what is known of it without the model."""

    name: str
    """What it is called, for people: the file's or the model's name."""
    model: HookedTransformer | None = None
    """The model, for pictures; None in a verdict that was read back."""
    task: Task | None = None
    """What it was trained on; likewise."""
    checkpoint: Checkpoint | None = None
    """Where it came from a checkpoint: weights, configurations, versions; likewise."""
    path: str | None = None
    """File or folder, as given."""
    sha256: str | None = None
    """Of the weights' file."""
    kind: str = "model"
    """Format it was read from: `anchorlens`, `released code`, ..., or `model`."""
    log: Sequence[Mapping[str, Any]] = ()
    """Log lines of its run, where its folder is there: `step`, `loss`, accuracies."""
    stored: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(_FACTS), repr=False)
    """Of a checkpoint that is not there: `step`, `model`, `train` and `versions`, as JSON data or None."""

    def __repr__(self) -> str:
        return f"Subject({self.name}, {self.kind})"

    @property
    def step(self) -> int | None:
        """Optimizer steps taken, as far as it is known."""
        return self.stored["step"] if self.checkpoint is None else self.checkpoint.step

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

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: `path`, `sha256`, `kind`, and its checkpoint's `step`, `model`, `train`, `versions`."""
        made, facts = self.checkpoint, self.stored
        if made is not None:
            train = None if made.train is None else made.train.to_dict()
            values = (made.step, made.model.to_dict(), train, dict(made.versions))
            facts = dict(zip(_FACTS, values, strict=True))
        return {"path": self.path, "sha256": self.sha256, "kind": self.kind} | dict(facts)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Subject:
        """Read what `to_dict` gave, also after a way through JSON."""
        path, kind = values["path"], values.get("kind", "model")
        stored = {name: values.get(name) for name in _FACTS}
        name = Path(path).name if path else kind
        return cls(name, path=path, sha256=values["sha256"], kind=kind, stored=stored)


@documented
@dataclass(frozen=True, eq=False)
class Verdict:
    """Phase 1, 2 or 3 by definition and by mechanism, with the reasons of both: data alone."""

    by_behaviour: Phase
    """The phase by definition; `undecided` where a number is within two standard errors of a threshold."""
    mechanism: Mechanism
    """The phase that the inside speaks for: by what it decodes, and by the probes alone."""
    behaviour: Any
    """Everything that was measured on answers: the task's `Evaluation`, a Behaviour for AnchorTask."""
    agreement: bool | None
    """Whether both name the same phase; None where one of them names none."""
    explanation: str
    """In a sentence: what the agreement, or the disagreement, means."""
    warnings: tuple[str, ...]
    """What the reader should know before believing it."""
    subject: Subject = field(repr=False)
    """What was classified."""
    trajectory: tuple[TrajectoryPoint, ...] = ()
    """Of a run's folder: every checkpoint with what it lets expect of the end."""

    @property
    def phase(self) -> int | None:
        """1 memorises, 2 generalises in distribution, 3 composes rules, by definition; None: undecided."""
        return self.by_behaviour.phase

    @property
    def commutative(self) -> bool | None:
        """In Phase 2, whether with commutativity; None elsewhere or undecided."""
        return self.by_behaviour.commutative

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content, as `anchorlens classify --json` prints it."""
        return {
            "schema_version": SCHEMA_VERSION,
            **self.by_behaviour.to_dict(),
            "agreement": self.agreement,
            "explanation": self.explanation,
            "warnings": list(self.warnings),
            "behaviour": self.behaviour.to_dict(),
            "mechanism": self.mechanism.to_dict(),
            "checkpoint": self.subject.to_dict(),
            "trajectory": [point.to_dict() for point in self.trajectory],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Verdict:
        """Read a verdict back, without the model it was about.

        Args:
            values: what `to_dict` gave, also after a way through JSON.

        Returns:
            The same phases, numbers and words; all but `report` and `subject.model_and_task` works.

        Raises:
            KeyError: something is missing that `to_dict` gives.
        """
        return cls(
            by_behaviour=Phase.from_dict(values),
            mechanism=Mechanism.from_dict(values["mechanism"]),
            behaviour=_evaluation(values["behaviour"]),
            agreement=values["agreement"],
            explanation=values["explanation"],
            warnings=tuple(values["warnings"]),
            subject=Subject.from_dict(values["checkpoint"]),
            trajectory=tuple(map(TrajectoryPoint.from_dict, values["trajectory"])),
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        probes: Sequence[Callable[..., ProbeResult] | str] = PROBES,
    ) -> None:
        """Write the report: one HTML page that needs no network.

        Args:
            path: of the page, .html; a file that is there is replaced.
            probes: whose pictures it shows; `(*PROBES, my_probe)` adds one of your own.

        Raises:
            ValueError: something else than probes, two of one name, a verdict that was read back, whose
                model is not there to be drawn, or no place for a page: another suffix, no such folder, or
                what is there is no ordinary file or is the checkpoint.
            OSError: the disk refuses; a file that was there before is untouched.
        """
        report(self, path, probes=probes)

    def __repr__(self) -> str:
        agreement = {True: "agrees", False: "disagrees", None: "is no comparison"}[self.agreement]
        return (
            f"Verdict({self.subject.name}: {self.by_behaviour.label}; "
            f"mechanism {agreement}: {self.mechanism.phase.label})"
        )

    _repr_html_ = html


def _evaluation(values: Mapping[str, Any]) -> Evaluation:
    """An evaluation from JSON data; that of the two-anchor task has a form of its own."""
    if "measures" not in values:
        return Behaviour.from_dict(values)
    return Measured.from_dict(values, task_class(values["kind"]).metrics)
