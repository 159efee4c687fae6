"""The questions of a benchmark: whether a reading has larger values for one of two kinds of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from anchorlens.configuration import documented

Ending = Literal["Phase 1", "Phase 2", "Phase 3", "inferential solution", "another solution"]
"""The outcome of a run: its phase in `reasoning`; in `conflict`, whether it composes for unseen pairs."""
ENDINGS: tuple[Ending, ...] = get_args(Ending)
Outcome = Literal["memorised", "learnt a rule", "between"]
"""The accuracy class of a model on held-out keys, relative to its training data."""


@documented
@dataclass(frozen=True)
class BenchmarkQuestion:
    """Two kinds of models that a reading may distinguish."""

    asks: str
    """The question in words."""
    no: tuple[Ending | Outcome, ...]
    """The endings or outcomes for which the answer is no."""
    yes: tuple[Ending | Outcome, ...]
    """The endings or outcomes for which the answer is yes; near AUC 1, these models have larger values."""

    def answer(self, ending: Ending, outcome: Outcome) -> bool | None:
        """Return True for the answer yes, False for no, and `None` for a model of neither kind."""
        return next((side == self.yes for side in (self.yes, self.no) if {ending, outcome} & {*side}), None)


QUESTIONS: Mapping[str, BenchmarkQuestion] = {
    "memorised": BenchmarkQuestion(
        "has it memorised its training data (accuracy on held-out keys at most 0.3 of that on training data, "
        "against at least 0.9)?",
        ("learnt a rule",),
        ("memorised",),
    ),
    "generalises": BenchmarkQuestion(
        "does it answer held-out keys (Phase 2 and 3 against Phase 1)?", ("Phase 1",), ("Phase 2", "Phase 3")
    ),
    "composes": BenchmarkQuestion(
        "does it compose the rules for unseen pairs (Phase 3 against Phase 2)?", ("Phase 2",), ("Phase 3",)
    ),
    "inferential": BenchmarkQuestion(
        "where the training data conflict with the rules: does it compose them nevertheless (the inferential "
        "solution against all others)?",
        ("another solution",),
        ("inferential solution",),
    ),
}
"""A map from the name of each question to the question."""
