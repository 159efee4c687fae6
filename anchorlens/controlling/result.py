"""What `control` found: every attempt with its phase and its cost, and the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from anchorlens.configuration import documented
from anchorlens.records import Count, Name, Record, Share, Text
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import Phase
from anchorlens.views import html

Minutes = Annotated[float, Ge(0)]
Outcome = Literal["finished", "diverged", "failed", "cut off", "skipped", "planned"]
"""`cut off`: begun, and not ended when the time was up or another had reached Phase 3; `skipped`: not begun;
`planned`: it would be tried."""


@documented
@dataclass(frozen=True)
class PhaseAnswers(Record):
    """What a model answers: its phase by definition, and the accuracies that decide it."""

    phase: Phase
    """By definition."""
    train: Share | None
    """Accuracy on its training data; None where that is not defined."""
    id: Share | None
    """In distribution."""
    ood: Share | None
    """On what training left out."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> PhaseAnswers:
        """Those of an evaluation."""
        values = (evaluation.measure(name) for name in ("train", "id", "ood"))
        return cls(evaluation.phase, *(value and value.value for value in values))

    @property
    def rank(self) -> tuple[float, ...]:
        """The larger the further it got: by phase, then by what the next phase asks for."""
        id, ood = self.id or 0.0, self.ood or 0.0
        number = self.phase.number or 0
        return (number, ood, id) if number > 1 else (number, id, ood)


@documented
@dataclass(frozen=True)
class Attempt(Record):
    """One intervention, and what came of it."""

    name: Name
    """Of the intervention."""
    why: Text
    """Why it may help."""
    source: Text
    """Where it comes from."""
    anew: bool
    """Whether its weights were drawn again; else it went on from the checkpoint."""
    baseline: bool
    """Whether the others are compared with it."""
    changes: Text
    """What it changes, in words."""
    steps: Count
    """Updates that it takes."""
    outcome: Outcome
    """How it ended."""
    estimate: Minutes | None = None
    """Minutes that it was expected to take, of one process; None where it cannot be tried."""
    minutes: Minutes | None = None
    """Minutes that its training took, over all calls; None where it has not ended."""
    chosen_by: PhaseAnswers | None = None
    """What it answers to the questions by which the best is chosen; None where it has not ended."""
    answers: PhaseAnswers | None = None
    """What it answers to the other questions, by which nothing is chosen: what is reported."""
    out: Text | None = None
    """The folder of its run; None where it was not begun."""
    note: Text = ""
    """What else is to be said of it, in a line."""


@documented
@dataclass(frozen=True, eq=False, repr=False)
class Control(Record):
    """What was tried to take a run to a later phase, in the order of the list, and what helped."""

    derived: ClassVar[tuple[str, ...]] = ("best", "helped", "reached")
    path: Text
    """The checkpoint that was to be helped."""
    sha256: Name
    """Of its file."""
    before: PhaseAnswers
    """What it answers to all questions."""
    attempts: tuple[Attempt, ...]
    """One for each intervention."""
    budget: Minutes
    """Minutes that it could take."""
    minutes: Minutes
    """Minutes that this call took."""
    halves: bool
    """Whether the best is chosen by one half of the left-out questions and reported on the other. Where it is
    not (a task of one's own without halves) both are the same questions, and OOD of the best is too high by
    what choosing adds."""
    seed: Count = 0
    """Of the evaluations' noise."""

    @property
    def goal(self) -> int:
        """The earliest phase that counts as help: 2 for a run in Phase 1, else 3."""
        return 2 if self.before.phase.number == 1 else 3

    def has_helped(self, attempt: Attempt) -> bool:
        """Whether an attempt got as far as `goal`, by the questions that choose."""
        return attempt.chosen_by is not None and (attempt.chosen_by.phase.number or 0) >= self.goal

    @property
    def tried(self) -> list[Attempt]:
        """Attempts that have ended, in order."""
        return [attempt for attempt in self.attempts if attempt.chosen_by is not None]

    @property
    def helped(self) -> list[str]:
        """Names of the attempts that got as far as `goal`, in order."""
        return [attempt.name for attempt in self.tried if self.has_helped(attempt)]

    @property
    def best_attempt(self) -> Attempt | None:
        """The attempt that got furthest, by the questions that choose; of equals the first. None of none."""
        return max(self.tried, key=lambda one: one.chosen_by.rank if one.chosen_by else (), default=None)

    @property
    def best(self) -> str | None:
        """The folder of the best attempt's run, to go on with; None where nothing helped."""
        best = self.best_attempt
        return best.out if best is not None and self.has_helped(best) else None

    @property
    def reached(self) -> int | None:
        """The phase of the best by the questions that did not choose it; None where nothing helped."""
        best = self.best_attempt
        if best is None or best.answers is None or not self.has_helped(best):
            return None
        return best.answers.phase.number

    _repr_html_ = html

    def __repr__(self) -> str:
        label, best = self.before.phase.label, self.best_attempt
        if all(attempt.outcome in ("planned", "skipped") for attempt in self.attempts):
            n = sum(attempt.outcome == "planned" for attempt in self.attempts)
            return f"Control({label}; {n} of {len(self.attempts)} to try)"
        if best is None or best.answers is None or not self.helped:
            return f"Control({label}; nothing helped, {len(self.tried)} of {len(self.attempts)} tried)"
        return f"Control({label}; {best.name}: {best.answers.phase.label}, in {best.out})"
