"""Answers by position of the key, and the solution by which unseen pairs are answered.

One mean over positions can hide two mechanisms: where the pair stands last, the second anchor is the token
that answers. The two solutions are those of arXiv 2405.05409; by position, and the rule for their names, are
ours.
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
"""Share of its answers that a solution must exceed at a position."""
NOTABLE = 0.1
"""Difference between two positions from which on it is worth a line."""
MOST_POSITIONS = 200
"""Positions of the key that are told apart."""
TITLES = {
    "train": "train",
    "id": "ID",
    "ood": "OOD",
    "inferential": "inferential",
    "symmetric": "symmetric",
}
"""Field -> as it is written."""


@documented
@dataclass(frozen=True)
class PositionAnswers(Record):
    """What is answered where the key stands at one position; the anchors follow it."""

    position: Count
    """Of the key, from 0."""
    train: Accuracy | None
    """As `AnchorEvaluation.train`; here and below None where nothing was asked."""
    id: Accuracy | None
    """As `AnchorEvaluation.id`."""
    ood: Accuracy | None
    """As `AnchorEvaluation.ood`."""
    inferential: Accuracy | None
    """Unseen pairs whose mirrored pair is trained on another target than the composition: share answered by
    the composition."""
    symmetric: Accuracy | None
    """The same pairs: share answered as the mirrored pair is trained."""


def gathered(
    found: Mapping[str, Mapping[int, Accuracy]], positions: Sequence[int]
) -> tuple[PositionAnswers, ...]:
    """Field -> position -> accuracy, gathered position by position; None where nothing was asked.

    Empty where there are more than `MOST_POSITIONS`: then hardly anything was asked at each.
    """
    if len(positions) > MOST_POSITIONS:
        return ()
    return tuple(
        PositionAnswers(place, **{name: found.get(name, {}).get(place) for name in TITLES})
        for place in positions
    )


def solution_of(positions: Sequence[PositionAnswers]) -> Solution | None:
    """The solution by which unseen pairs are answered.

    A solution holds at a position where its share exceeds .5 by more than two standard errors.

    Args:
        positions: answers at each.

    Returns:
        `inferential` or `symmetric` where that holds at every position; `mixed by position` where one holds
        at some positions and the other at others; else `other`. None where no pair has two solutions to
        tell apart (`reasoning`), or nothing was kept by position.
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
    """How unseen pairs are answered over all positions: `inferential 0.12, symmetric 0.80`."""
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
    """Field, lowest and highest position of each accuracy that differs notably between positions.

    It does where the two differ by more than .10 even when two standard errors of their difference are
    taken away.
    """
    for name in _shown(positions):
        asked = [one for one in positions if getattr(one, name) is not None]
        low, high = (pick(asked, key=lambda one, name=name: getattr(one, name).value) for pick in (min, max))
        least, most = getattr(low, name), getattr(high, name)
        error = (least.standard_error**2 + most.standard_error**2) ** 0.5
        if most.value - least.value - CLEAR * error > NOTABLE:
            yield name, low, high


def in_words(positions: Sequence[PositionAnswers]) -> str:
    """One line: what differs notably between positions, and the solution; empty where there is neither."""
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
    """Accuracies over positions, as data."""
    shown = _shown(positions)
    measured = {TITLES[name]: [getattr(one, name) for one in positions] for name in shown}
    return Lines(
        title="Answers by position of the key",
        caption="Accuracies where the key stands at each position, with bars of one standard error; at the "
        "last one the second anchor is the last token. Where lines are not level the model answers in "
        "different ways.",
        x_title="position of the key",
        y_title="share of answers",
        x=[one.position for one in positions],
        y={title: [one and one.value for one in values] for title, values in measured.items()},
        errors={title: [one and one.standard_error for one in values] for title, values in measured.items()},
    )


def _shown(positions: Sequence[PositionAnswers]) -> list[str]:
    """The accuracies that were asked; `inferential` only where it is not OOD accuracy itself."""
    asked = [name for name in TITLES if any(getattr(one, name) is not None for one in positions)]
    same = all(one.inferential == one.ood for one in positions)
    return [name for name in asked if not (name == "inferential" and same)]
