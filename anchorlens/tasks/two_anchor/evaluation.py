"""AnchorEvaluation: what a model answers to the two-anchor task, pair by pair and position by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anchorlens.configuration import documented
from anchorlens.records import Record, Share
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import CLEAR, Phase, Solution
from anchorlens.tasks.two_anchor import by_position
from anchorlens.tasks.two_anchor.by_position import PositionAnswers
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.splits import Split


@documented
@dataclass(frozen=True)
class PairAccuracy(Record):
    """The accuracy of a model on one anchor pair."""

    pair: Pair
    """Anchor tokens in order."""
    split: Split
    """`id`: a seen pair on held-out (key, position); `ood`: an unseen pair on all of them."""
    accuracy: Accuracy
    """Against the trained target for seen pairs (exceptions included), the inferential one for unseen."""


@documented
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnchorEvaluation(Evaluation):
    """The result of `evaluate` on the two-anchor task, with accuracies by split, pair and position.

    Its measures:

    - `train` is the accuracy on sequences of the training set if this set is known, and otherwise on trained
      trials with fresh noise (`train_source`).
    - `id` is the accuracy on trained pairs at held-out (key, position), against the trained targets,
      including exceptions.
    - `ood` is the accuracy on unseen pairs against the inferential target, apart from test inputs that
      symmetry answers (`by_symmetry`). `ood` is None if every pair is trained, or symmetry answers all test
      inputs.
    - `symmetric` is the accuracy on unseen pairs against the trained target of the reversed pair. `symmetric`
      covers only test inputs on which this target differs from the inferential target, and is None without
      these inputs.
    - `commutativity` is the proportion of key, position and noise for which an unseen pair and its reversed
      pair get the same answer. `commutativity` is None if no unseen pair differs from its reversed pair, or
      if the composition depends on the order.

    A task with exceptions has three more measures:

    - `exceptions` is the accuracy on every exception at every trained position, with fresh noise.
    - `rules` is the ID accuracy on pairs that are trained on the composition, without exceptions.
    - `broken` is the ID accuracy on pairs that are trained on another function (`complexity`, `overrides`),
      without exceptions. `rules` and `broken` are None if no pair of this kind is trained.

    Source: arXiv 2405.05409 (inferential and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
    """

    derived: ClassVar[tuple[str, ...]] = ("phase", "solution")
    drawn_at_random: ClassVar[str] = "noise draws"
    train_fresh: Accuracy
    """Accuracy on every trained (pair, key, position) with fresh noise."""
    pairs: tuple[PairAccuracy, ...]
    """The accuracy of each pair that was evaluated."""
    deviations: Mapping[Split, Mapping[int, Share]]
    """Split -> {answer - target: share of its sequences}; the target is inferential for `ood`."""
    positions: tuple[PositionAnswers, ...] = ()
    """One for every position of the key; empty for more than 200 of them."""
    in_conflict: bool = False
    """Whether the training data conflict with the composition (`AnchorTask.in_conflict`): `phase` then names
    the solution."""
    best_constant: Accuracy
    """Accuracy of the best constant answer on the training questions, with its standard error for that many
    questions: the chance level."""

    def __post_init__(self) -> None:
        """Leave out what was measured if a logit was not finite."""
        super().__post_init__()
        if not self.finite:
            for name, nothing in (
                ("pairs", ()),
                ("deviations", {}),
                ("positions", ()),
                ("by_symmetry", None),
            ):
                object.__setattr__(self, name, nothing)

    @property
    def symmetric(self) -> Accuracy | None:
        """The measure `symmetric`."""
        return self.measure("symmetric")

    @property
    def commutativity(self) -> Accuracy | None:
        """The measure `commutativity`."""
        return self.measure("commutativity")

    @property
    def at_chance(self) -> str | None:
        """The reason why the answers are not evidence of training on the task, or None if they are evidence.

        The answers are evidence if train accuracy exceeds the accuracy of the best constant answer by more
        than two standard errors. Either train accuracy on fresh noise or train accuracy on given training
        data is sufficient.
        """
        constant = self.best_constant
        for train in (self.train_fresh, self.train or self.train_fresh):
            n_sequences = min(train.n_sequences, constant.n_sequences)
            error = Accuracy.of_share(constant.value, n_sequences).standard_error
            if train.value > constant.value + CLEAR * error:
                return None
        return (
            f"train accuracy {self.train_fresh.value:.3f} is not above {constant}, the accuracy of the "
            "best constant answer: no sign of training on this task"
        )

    def __repr__(self) -> str:
        values = {"train": self.train, "ID": self.id, "OOD": self.ood} if self.finite else {}
        absent = "no unseen pair" if self.finite and self.by_symmetry is None else "no OOD test"
        numbers = (f"{title} {one.value:.3f}" if one else absent for title, one in values.items())
        remembered = self.measure("exceptions")
        more = "" if remembered is None else f", exceptions {remembered.value:.3f}"
        return f"AnchorEvaluation({'; '.join(filter(None, [self.phase.label, ', '.join(numbers)]))}{more})"

    def _named(self, standard_errors: int | None) -> Phase:
        found = super()._named(standard_errors)
        if not self.in_conflict or found.cause not in (None, "borderline", "inconsistent"):
            return found
        solution, numbers = self.solution, by_position.shares_in_words(self.positions)
        if solution is None:
            return Phase.undecided(
                "not defined", "no position has enough answers to distinguish the solutions"
            )
        return Phase(None, None, f"train {self.measure('train')}, unseen pairs {numbers}", solution=solution)

    @property
    def solution(self) -> Solution | None:
        """The solution by which the model answers unseen pairs, or None if no pair distinguishes solutions.

        See `anchorlens.tasks.two_anchor.by_position.solution_of`.
        """
        return by_position.solution_of(self.positions)

    def in_words(self) -> list[str]:
        """Describe the deviations of each split, the solution, and notable differences between positions."""
        lines = [
            f"{name.upper()} answers minus target: {self.deviations_in_words(name)}"
            for name in self.deviations
        ]
        if self.by_symmetry is not None:
            lines.append(
                f"unseen pairs that are trained in another order on the same target: {self.by_symmetry}, not "
                "counted in OOD"
            )
        return [*lines, *filter(None, [by_position.in_words(self.positions)])]

    def by_pair(self) -> dict[Pair, PairAccuracy]:
        """Return a map from each pair to its `PairAccuracy`."""
        return {tuple(pair.pair): pair for pair in self.pairs}

    def lowest(self, n: int) -> list[PairAccuracy]:
        """Return the `PairAccuracy` of the `n` pairs with the lowest accuracy, NaN first."""
        return sorted(self.pairs, key=lambda pair: np.nan_to_num(pair.accuracy.value, nan=-1.0))[:n]

    def deviations_in_words(self, split: Split, most: int = 4) -> str:
        """Describe the most frequent deviations of answers from targets, such as `+0 in 75%, -4 in 25%`."""
        ranked = sorted(self.deviations[split].items(), key=lambda item: -item[1])
        named = [f"{deviation:+d} in {share:.0%}" for deviation, share in ranked[:most]]
        rest = 1 - sum(share for _, share in ranked[:most])
        return ", ".join(named) + (f", others in {rest:.0%}" if len(ranked) > most else "")
