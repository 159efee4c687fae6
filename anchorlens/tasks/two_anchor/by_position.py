"""Answers by position of the key, and the solution by which unseen pairs are answered.

One mean over positions can hide two mechanisms: where the pair is last, the model answers at the position of
the second anchor. The two solutions are those of arXiv 2405.05409; the analysis by position, and the rule
that names a solution, are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchorlens.configuration import documented
from anchorlens.records import Count, Record
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.figure_specs import Lines
from anchorlens.tasks.shared.phases import CLEAR, Solution

HOLDS = 0.5
"""A solution holds at a position if its share of the answers there exceeds this."""
NOTABLE = 0.1
"""Difference between two positions above which it is reported."""
MOST_POSITIONS = 200
"""Most positions of the key that are evaluated one by one."""
TITLES = {
    "train": "train",
    "id": "ID",
    "ood": "OOD",
    "inferential": "inferential",
    "symmetric": "symmetric",
}
"""Field -> title."""


@documented
@dataclass(frozen=True)
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


def notable(positions: Sequence[PositionAnswers]) -> Iterator[tuple[str, PositionAnswers, PositionAnswers]]:
    """Yield each accuracy with a notable difference, and the positions of its lowest and highest value.

    The two values must differ by more than 0.10 plus two standard errors of the difference.
    """
    for name in _shown(positions):
        asked = [one for one in positions if getattr(one, name) is not None]
        low, high = (pick(asked, key=lambda one, name=name: getattr(one, name).value) for pick in (min, max))
        least, most = getattr(low, name), getattr(high, name)
        error = (least.standard_error**2 + most.standard_error**2) ** 0.5
        if most.value - least.value - CLEAR * error > NOTABLE:
            yield name, low, high


def in_words(positions: Sequence[PositionAnswers]) -> str:
    """Return one line about the solution and notable differences between positions, or an empty text."""
    differences = [
        f"{TITLES[name]} {getattr(low, name).value:.2f} at {low.position} to "
        f"{getattr(high, name).value:.2f} at {high.position}"
        for name, low, high in notable(positions)
    ]
    solution = solution_of(positions)
    parts = [f"unseen pairs: {solution}"] if solution else []
    parts += [f"by position of the key: {', '.join(differences)}"] if differences else []
    return "; ".join(parts)


def figure_spec(positions: Sequence[PositionAnswers]) -> Lines:
    """Return the figure of accuracy by position of the key, as data."""
    shown = _shown(positions)
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


def _shown(positions: Sequence[PositionAnswers]) -> list[str]:
    """Return the measured accuracies; `inferential` is omitted if it equals OOD accuracy."""
    asked = [name for name in TITLES if any(getattr(one, name) is not None for one in positions)]
    same = all(one.inferential == one.ood for one in positions)
    return [name for name in asked if not (name == "inferential" and same)]
