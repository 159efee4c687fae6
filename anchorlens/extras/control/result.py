"""The result of `control`: every attempt with its phase and its cost, and the best attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from anchorlens.configuration import documented
from anchorlens.records import Count, Name, Record, Share, Text, limits
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import LEARNT, Phase
from anchorlens.views import html

Minutes = Annotated[float, limits(ge=0)]
Outcome = Literal["finished", "diverged", "failed", "cut off", "skipped", "planned"]
"""`cut off`: still running when the time was up or another attempt had reached the goal; `skipped`: not
begun; `planned`: would be tried."""


@documented
@dataclass(frozen=True)
class PhaseAnswers(Record):
    """The phase of a model by behaviour, and the accuracies that decide it."""

    phase: Phase
    """The phase by behaviour."""
    train: Share | None
    """Accuracy on its training data; None where that is not defined."""
    id: Share | None
    """Accuracy in distribution."""
    ood: Share | None
    """Accuracy out of distribution, on what training left out."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> PhaseAnswers:
        """Take phase and accuracies from an evaluation."""
        values = (evaluation.measure(name) for name in ("train", "id", "ood"))
        return cls(evaluation.phase, *(value and value.value for value in values))

    @property
    def stage(self) -> int:
        """1 to 3: the phase, or without OOD what was learnt, 3 for `generalises`; 0 for neither."""
        if self.phase.solution in LEARNT:
            return LEARNT.index(self.phase.solution) + 1
        return self.phase.number or 0

    @property
    def rank(self) -> tuple[float, ...]:
        """Sort key, larger is better: by phase, then by the accuracy that the next phase requires."""
        id, ood = self.id or 0.0, self.ood or 0.0
        return (self.stage, ood, id) if self.stage > 1 else (self.stage, id, ood)


@documented
@dataclass(frozen=True)
class Attempt(Record):
    """One intervention and its outcome."""

    name: Name
    """Name of the intervention."""
    why: Text
    """Why it may help."""
    source: Text
    """Its source."""
    anew: bool
    """Whether its weights were drawn again; else it continued from the checkpoint."""
    baseline: bool
    """Whether it is the baseline for the others."""
    changes: Text
    """What it changes, in words."""
    steps: Count
    """Number of updates."""
    outcome: Outcome
    """How it ended."""
    estimate: Minutes | None = None
    """Expected minutes of one process; None where it cannot be tried."""
    minutes: Minutes | None = None
    """Minutes that its training took, over all calls; None where it has not ended."""
    chosen_by: PhaseAnswers | None = None
    """Its accuracies on the half of the questions that chooses the best attempt; None where it has not
    ended."""
    answers: PhaseAnswers | None = None
    """Its accuracies on the other half of the questions, which is reported."""
    out: Text | None = None
    """The folder of its run; None where it was not begun."""
    note: Text = ""
    """A remark, in one line."""


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Control(Record):
    """All attempts to take a run to a later phase, in the order of the list, and which of them helped."""

    derived: ClassVar[tuple[str, ...]] = ("best", "helped", "reached")
    path: Text
    """The original checkpoint."""
    sha256: Name
    """The SHA-256 of its file."""
    before: PhaseAnswers
    """Its phase and accuracies on all questions."""
    attempts: tuple[Attempt, ...]
    """One for each intervention."""
    budget: Minutes
    """The time budget."""
    minutes: Minutes
    """Minutes that this call took."""
    halves: bool
    """Whether the best is chosen by one half of the left-out questions and reported on the other. Otherwise
    (a user's own task without halves) both are the same questions, and the OOD accuracy of the best is biased
    upward by the selection."""
    seed: Count = 0
    """Seed of the noise in the evaluations."""

    @property
    def goal(self) -> int:
        """The earliest stage that counts as help: 2 for a run in Phase 1, else 3."""
        return 2 if self.before.phase.number == 1 else 3

    @property
    def goal_in_words(self) -> str:
        """`goal` as a label: `Phase 2 or 3`, `Phase 3`; `generalises` for a task without OOD."""
        if self.before.phase.solution in LEARNT:
            return LEARNT[-1]
        return "Phase 2 or 3" if self.goal == 2 else "Phase 3"

    def has_helped(self, attempt: Attempt) -> bool:
        """Whether an attempt reached `goal`, by the questions that choose."""
        return attempt.chosen_by is not None and attempt.chosen_by.stage >= self.goal

    @property
    def tried(self) -> list[Attempt]:
        """Attempts that have ended, in order."""
        return [attempt for attempt in self.attempts if attempt.chosen_by is not None]

    @property
    def helped(self) -> list[str]:
        """Names of the attempts that reached `goal`, in order."""
        return [attempt.name for attempt in self.tried if self.has_helped(attempt)]

    @property
    def best_attempt(self) -> Attempt | None:
        """The first attempt of the highest rank by the questions that choose; None if none has ended."""
        return max(self.tried, key=lambda one: one.chosen_by.rank if one.chosen_by else (), default=None)

    @property
    def best(self) -> str | None:
        """The folder of the best attempt's run, to continue from; None where nothing helped."""
        best = self.best_attempt
        return best.out if best is not None and self.has_helped(best) else None

    @property
    def reached(self) -> int | None:
        """The stage of the best by the questions that did not choose it; None where nothing helped."""
        best = self.best_attempt
        if best is None or best.answers is None or not self.has_helped(best):
            return None
        return best.answers.stage or None

    _repr_html_ = html

    def __repr__(self) -> str:
        label, best = self.before.phase.label, self.best_attempt
        if all(attempt.outcome in ("planned", "skipped") for attempt in self.attempts):
            n = sum(attempt.outcome == "planned" for attempt in self.attempts)
            return f"Control({label}; {n} of {len(self.attempts)} to try)"
        if best is None or best.answers is None or not self.helped:
            return f"Control({label}; nothing helped, {len(self.tried)} of {len(self.attempts)} tried)"
        return f"Control({label}; {best.name}: {best.answers.phase.label}, in {best.out})"
