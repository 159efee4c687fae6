"""The result of `control`: every attempt with its phase and its cost, and the best attempt."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Count, Name, Record, Share, Text, limits
from anchorlens.tasks import LEARNT, Evaluation, Phase
from anchorlens.views import html

Minutes = Annotated[float, limits(ge=0)]
Outcome = Literal["finished", "diverged", "failed", "cut off", "skipped", "planned"]
"""The outcome of an attempt. `cut off`: still running when the time was up or another attempt had reached the
goal. `skipped`: not begun. `planned`: only listed, in a dry run."""


@frozen_dataclass()
class PhaseAnswers(Record):
    """The behavioural phase of a model, and the accuracies that decide the phase."""

    phase: Phase
    """The behavioural phase."""
    train: Share | None
    """The accuracy on the training data, or `None` if this accuracy is not defined."""
    id: Share | None
    """The accuracy in distribution."""
    ood: Share | None
    """The accuracy out of distribution, on inputs that training never shows."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> PhaseAnswers:
        """Take the phase and the accuracies from an evaluation."""
        values = (evaluation.measure(name) for name in ("train", "id", "ood"))
        return cls(evaluation.phase, *(value and value.value for value in values))

    @property
    def stage(self) -> int:
        """The phase, 1 to 3, or 0 for an unknown phase. Stage 3 also stands for the label `generalises`."""
        if self.phase.solution in LEARNT:
            return LEARNT.index(self.phase.solution) + 1
        return self.phase.number or 0

    @property
    def rank(self) -> tuple[float, ...]:
        """The sort key (larger is better): the phase, then the accuracy that decides the next phase."""
        id, ood = self.id or 0.0, self.ood or 0.0
        return (self.stage, ood, id) if self.stage > 1 else (self.stage, id, ood)


@frozen_dataclass()
class Attempt(Record):
    """One intervention and its outcome."""

    name: Name
    """The name of the intervention."""
    why: Text
    """The reason why the intervention may help."""
    source: Text
    """The source of the intervention."""
    anew: bool
    """Whether the weights were drawn again. Otherwise, training continued from the checkpoint."""
    baseline: bool
    """Whether this attempt is the baseline for the others."""
    changes: Text
    """A description of the changes of the intervention."""
    steps: Count
    """The number of updates."""
    outcome: Outcome
    """The outcome of the attempt."""
    estimate: Minutes | None = None
    """The expected minutes of one process, or `None` if the attempt cannot be tried."""
    minutes: Minutes | None = None
    """The minutes of training, over all calls, or `None` if training has not ended."""
    chosen_by: PhaseAnswers | None = None
    """The accuracies on the half of the test inputs that selects the best attempt, or `None` if training has
    not ended."""
    answers: PhaseAnswers | None = None
    """The accuracies on the other half of the test inputs, for the report."""
    out: Text | None = None
    """The folder of the attempt's run, or `None` if the attempt was not begun."""
    note: Text = ""
    """A remark, in one line."""


@frozen_dataclass(eq=False, repr=False)
class Control(Record):
    """All attempts to take a run to a later phase, in the order of the list, and the best attempt."""

    derived: ClassVar[tuple[str, ...]] = ("best", "helped", "reached")
    path: Text
    """The original checkpoint."""
    sha256: Name
    """The SHA-256 of the checkpoint's file."""
    before: PhaseAnswers
    """The phase and accuracies of the original checkpoint on all test inputs."""
    attempts: tuple[Attempt, ...]
    """The attempts, one for each intervention."""
    budget: Minutes
    """The time budget."""
    minutes: Minutes
    """The minutes that this call took."""
    halves: bool
    """Whether one half of the OOD test inputs selects the best attempt and the other half is reported. A
    user's own task without halves uses the same inputs for both, and the OOD accuracy of the best attempt is
    then biased upward by the selection."""
    seed: Count = 0
    """The seed of the noise in the evaluations."""

    @property
    def goal(self) -> int:
        """The earliest stage that counts as an improvement: 2 for a run in Phase 1, and 3 otherwise."""
        return 2 if self.before.phase.number == 1 else 3

    @property
    def goal_in_words(self) -> str:
        """The label of `goal`: `Phase 2 or 3`, `Phase 3` or, for a task without OOD data, `generalises`."""
        if self.before.phase.solution in LEARNT:
            return LEARNT[-1]
        return "Phase 2 or 3" if self.goal == 2 else "Phase 3"

    def has_helped(self, attempt: Attempt) -> bool:
        """Return whether an attempt reached `goal` on the test inputs that select the best attempt."""
        return attempt.chosen_by is not None and attempt.chosen_by.stage >= self.goal

    @property
    def tried(self) -> list[Attempt]:
        """The attempts that have ended, in order."""
        return [attempt for attempt in self.attempts if attempt.chosen_by is not None]

    @property
    def helped(self) -> list[str]:
        """The names of the attempts that reached `goal`, in order."""
        return [attempt.name for attempt in self.tried if self.has_helped(attempt)]

    @property
    def best_attempt(self) -> Attempt | None:
        """The first attempt with the highest `rank` on the selection inputs, or `None` without attempts."""
        return max(self.tried, key=lambda one: one.chosen_by.rank if one.chosen_by else (), default=None)

    @property
    def best(self) -> str | None:
        """The folder of the best attempt's run, or `None` if no attempt reached `goal`."""
        best = self.best_attempt
        return best.out if best is not None and self.has_helped(best) else None

    @property
    def reached(self) -> int | None:
        """The stage of the best attempt on the report inputs, or `None` if no attempt reached `goal`."""
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
