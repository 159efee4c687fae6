"""What is measured on the two-anchor task: its metrics, AnchorEvaluation, and the answers by key position.

One mean over positions can hide two mechanisms: where the pair is last, the model answers at the position of
the second anchor. The two solutions are those of arXiv 2405.05409; the analysis by position, and the rule
that names a solution, are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Count, Record, Share
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.figure_specs import Lines
from anchorlens.tasks.shared.measures import Accuracy, Metric, phase_metrics
from anchorlens.tasks.shared.phases import CLEAR, Phase, Solution
from anchorlens.tasks.two_anchor.sequences import Pair, Split

N_NOISE = 8
MAX_TRAIN = 4096
MAX_TRIALS = 20_000
"""What `evaluate` asks: draws of noise for a trial, most training sequences, most trials of a split."""
QUICK_TRAIN, QUICK_TRIALS = 1024, 2048
"""The same of `quick_accuracies`, with one draw of noise."""

OF_RULES = (
    *phase_metrics(
        meanings=(
            "the training data",
            "trained pairs at held-out (key, position)",
            "unseen pairs, target by the composition",
        ),
        asks=("trained (pair, key, position), fresh noise", "held-out keys", "unseen pairs"),
    ),
    Metric(
        "symmetric",
        "symmetric",
        "Symmetric accuracy",
        "unseen pairs, target of the reversed pair",
        in_tables=False,
        in_maps=True,
        higher_is_better=None,
    ),
    Metric(
        "commutativity",
        "commutativity",
        "Commutativity",
        "same answer for (.., a, b) and (.., b, a)",
        higher_is_better=None,
    ),
)
"""Metrics of every task. Sources: arXiv 2501.08537 (ID, OOD, commutativity), 2405.05409 (symmetric
accuracy)."""

OF_EXCEPTIONS = (
    Metric(
        "exceptions",
        "exceptions",
        "Exceptions remembered",
        "exceptions at trained positions, fresh noise",
        logged_as="exceptions_accuracy",
    ),
    Metric("rules", "rules", "Rule accuracy", "ID without exceptions, pairs trained on the composition"),
    Metric(
        "broken",
        "broken",
        "Broken-group accuracy",
        "ID without exceptions, pairs trained on another function",
    ),
)
"""Further metrics of a task with exceptions. Source: ours."""

METRICS = (*OF_RULES, *OF_EXCEPTIONS)
"""All metrics that an AnchorTask may have."""


HOLDS = 0.5
"""A solution holds at a position if its share of the answers there exceeds this."""
MOST_POSITIONS = 200
"""Most positions of the key that are evaluated one by one."""
TITLES = {"train": "train", "id": "ID", "ood": "OOD", "inferential": "inferential", "symmetric": "symmetric"}
"""Field -> title."""


@frozen_dataclass()
class PositionAnswers(Record):
    """The accuracies of a model on sequences whose key is at one position."""

    position: Count
    """Position of the key, from 0."""
    train: Accuracy | None
    """As `AnchorEvaluation.train`; here and below None where there was no question."""
    id: Accuracy | None
    """As `AnchorEvaluation.id`."""
    ood: Accuracy | None
    """As `AnchorEvaluation.ood`."""
    inferential: Accuracy | None
    """Unseen pairs whose mirrored pair is trained on another target than the composition: share answered with
    the composition."""
    symmetric: Accuracy | None
    """The same pairs: share answered as the mirrored pair is trained."""


def gathered(
    found: Mapping[str, Mapping[int, Accuracy]], positions: Sequence[int]
) -> tuple[PositionAnswers, ...]:
    """Gather the accuracies at each position of the key, with None for an accuracy without test inputs.

    The result is empty for more than `MOST_POSITIONS` positions, because each position then has too few test
    inputs.
    """
    if len(positions) > MOST_POSITIONS:
        return ()
    return tuple(
        PositionAnswers(place, **{name: found.get(name, {}).get(place) for name in TITLES})
        for place in positions
    )


def solution_of(positions: Sequence[PositionAnswers]) -> Solution | None:
    """Return the solution by which the model answers unseen pairs.

    A solution holds at a position if the proportion of answers by this solution exceeds 0.5 by more than two
    standard errors.

    Args:
        positions: the answers at each position.

    Returns:
        The result is `inferential` or `symmetric` if this solution holds at every position. The result is
        `mixed by position` if both solutions hold, each at some positions. The result is `None` if no pair
        distinguishes the solutions (regime `reasoning`), or if `positions` has no answers. Otherwise, the
        result is `other`.
    """
    asked = [one for one in positions if one.inferential is not None and one.symmetric is not None]
    if not asked:
        return None
    inferential = [_holds(one.inferential) for one in asked]
    symmetric = [_holds(one.symmetric) for one in asked]
    if all(inferential):
        return "inferential"
    if all(symmetric):
        return "symmetric"
    return "mixed by position" if any(inferential) and any(symmetric) else "other"


def shares_in_words(positions: Sequence[PositionAnswers]) -> str:
    """Return the proportion of each solution as text, such as `inferential 0.120, symmetric 0.800`."""
    means = []
    for name in ("inferential", "symmetric"):
        shares = [share for one in positions if (share := getattr(one, name)) is not None]
        n = sum(share.n_sequences for share in shares)
        if n:
            means.append(f"{name} {sum(share.value * share.n_sequences for share in shares) / n:.3f}")
    return ", ".join(means)


def _holds(share: Accuracy | None) -> bool:
    return share is not None and share.value - CLEAR * share.standard_error > HOLDS


def positions_figure(positions: Sequence[PositionAnswers]) -> Lines:
    """Return the figure of accuracy by position of the key; it omits `inferential` equal to OOD accuracy."""
    asked = [name for name in TITLES if any(getattr(one, name) is not None for one in positions)]
    same = all(one.inferential == one.ood for one in positions)
    shown = [name for name in asked if not (name == "inferential" and same)]
    measured = {TITLES[name]: [getattr(one, name) for one in positions] for name in shown}
    return Lines(
        title="Answers by position of the key",
        caption="Accuracy by position of the key, with bars of one standard error. At the last position the "
        "second anchor is the last token. If a line is not level, the model answers differently by position.",
        x_title="position of the key",
        y_title="share of answers",
        x=[one.position for one in positions],
        y={title: [one and one.value for one in values] for title, values in measured.items()},
        errors={title: [one and one.standard_error for one in values] for title, values in measured.items()},
    )


@frozen_dataclass()
class PairAccuracy(Record):
    """The accuracy of a model on one anchor pair."""

    pair: Pair
    """Anchor tokens in order."""
    split: Split
    """`id`: a seen pair on held-out (key, position); `ood`: an unseen pair on all of them."""
    accuracy: Accuracy
    """Against the trained target for seen pairs (exceptions included), the inferential one for unseen."""


@frozen_dataclass(eq=False, repr=False, kw_only=True)
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
            for name, value in {"pairs": (), "deviations": {}, "positions": (), "by_symmetry": None}.items():
                object.__setattr__(self, name, value)

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
        solution, numbers = self.solution, shares_in_words(self.positions)
        if solution is None:
            why = "no position has enough answers to distinguish the solutions"
            return Phase.undecided("not defined", why)
        return Phase(None, None, f"train {self.measure('train')}, unseen pairs {numbers}", solution=solution)

    @property
    def solution(self) -> Solution | None:
        """The solution by which the model answers unseen pairs, or None if no pair distinguishes solutions.

        See `solution_of`.
        """
        return solution_of(self.positions)

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
        return [*lines, *([f"unseen pairs: {self.solution}"] if self.solution else [])]

    def by_pair(self) -> dict[Pair, PairAccuracy]:
        """Return a map from each pair to its `PairAccuracy`."""
        return {tuple(pair.pair): pair for pair in self.pairs}

    def deviations_in_words(self, split: Split, most: int = 4) -> str:
        """Describe the most frequent deviations of answers from targets, such as `+0 in 75%, -4 in 25%`."""
        ranked = sorted(self.deviations[split].items(), key=lambda item: -item[1])
        named = [f"{deviation:+d} in {share:.0%}" for deviation, share in ranked[:most]]
        rest = 1 - sum(share for _, share in ranked[:most])
        return ", ".join(named) + (f", others in {rest:.0%}" if len(ranked) > most else "")
