"""Both verdicts on one model, whether they agree, and what it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import documented
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.probes.registry import PROBES
from anchorlens.probes.result import ProbeResult
from anchorlens.tasks.phases import Phase
from anchorlens.tasks.two_anchor.behaviour import Behaviour
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.forecast import Moment
from anchorlens.verdict.mechanism import Mechanism
from anchorlens.views import drawn

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

SCHEMA_VERSION = 1
"""Of `to_dict`; it grows by one when a key changes its meaning or goes."""


@documented
@dataclass(frozen=True, eq=False)
class Subject:
    """What was classified."""

    name: str
    """What it is called, for people: the file's or the model's name."""
    model: HookedTransformer
    """The model, for pictures."""
    task: AnchorTask
    """What it was trained on."""
    checkpoint: Checkpoint | None = None
    """Where it came from a checkpoint: weights, configurations, versions."""
    path: str | None = None
    """File or folder, as given."""
    sha256: str | None = None
    """Of the weights' file."""
    kind: str = "model"
    """Format it was read from: `anchorlens`, `released code`, ..., or `model`."""
    log: Sequence[Mapping[str, Any]] = ()
    """Log lines of its run, where its folder is there: `step`, `loss`, accuracies."""

    def __repr__(self) -> str:
        return f"Subject({self.name}, {self.kind})"

    @property
    def step(self) -> int | None:
        """Optimizer steps taken, as far as it is known."""
        return None if self.checkpoint is None else self.checkpoint.step


@documented
@dataclass(frozen=True, eq=False)
class Verdict:
    """Phase 1, 2 or 3 by definition and by mechanism, with the reasons of both."""

    by_behaviour: Phase
    """The phase by definition; `undecided` where a number is within two standard errors of a threshold."""
    mechanism: Mechanism
    """The phase that the inside speaks for."""
    behaviour: Behaviour
    """Everything that was measured on answers."""
    agreement: bool | None
    """Whether both name the same phase; None where one of them names none."""
    explanation: str
    """In a sentence: what the agreement, or the disagreement, means."""
    warnings: tuple[str, ...]
    """What the reader should know before believing it."""
    subject: Subject = field(repr=False)
    """What was classified."""
    trajectory: tuple[Moment, ...] = ()
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
        subject = self.subject
        checkpoint = subject.checkpoint
        return {
            "schema_version": SCHEMA_VERSION,
            "phase": self.phase,
            "commutative": self.commutative,
            "label": self.by_behaviour.label,
            "reason": self.by_behaviour.reason,
            "agreement": self.agreement,
            "explanation": self.explanation,
            "warnings": list(self.warnings),
            "behaviour": self.behaviour.to_dict(),
            "mechanism": self.mechanism.to_dict(),
            "checkpoint": {
                "path": subject.path,
                "sha256": subject.sha256,
                "step": subject.step,
                "kind": subject.kind,
                "model": None if checkpoint is None else checkpoint.model.to_dict(),
                "train": None
                if checkpoint is None or checkpoint.train is None
                else checkpoint.train.to_dict(),
                "versions": None if checkpoint is None else dict(checkpoint.versions),
            },
            "trajectory": [moment.to_dict() for moment in self.trajectory],
        }

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        probes: Sequence[Callable[..., ProbeResult] | str] = PROBES,
    ) -> None:
        """Write the report: one HTML page that needs no network.

        Args:
            path: of the page; a file that is there is replaced.
            probes: whose pictures it shows; `(*PROBES, my_probe)` adds one of your own.

        Raises:
            ValueError: something else than probes, or two of one name.
            OSError: the disk refuses; a file that was there before is untouched.
        """
        drawn("write_report")([self], path, probes=probes)

    def __repr__(self) -> str:
        agreement = {True: "agrees", False: "disagrees", None: "is no comparison"}[self.agreement]
        return (
            f"Verdict({self.subject.name}: {self.by_behaviour.label}; "
            f"mechanism {agreement}: {self.mechanism.phase.label})"
        )

    def _repr_html_(self) -> str:
        return drawn("verdict_html")(self)
