"""The definition of the phases: four accuracies in, a phase or the reason for none out.

Sources: the phases of arXiv 2405.05409 and 2501.08537, with thresholds in numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from anchorlens.configuration import documented

FIT_THRESHOLD = 0.90
"""Train accuracy below this: underfit, no phase."""
ID_THRESHOLD = 0.90
"""ID accuracy below this: Phase 1."""
OOD_THRESHOLD = 0.50
"""OOD accuracy above this: Phase 3."""
COMMUTATIVITY_THRESHOLD = 0.70
"""Commutativity from this on: Phase 2 is `with commutativity`."""

LABELS = ("Phase 1", "Phase 2 without commutativity", "Phase 2 with commutativity", "Phase 3")
"""The phases, with Phase 2 in its two forms."""

SHORT: Mapping[str, str] = dict(zip(LABELS, ("1", "2 without", "2 with", "3"), strict=True))
"""Label of a phase -> as it stands where there is little room."""

COLOURS: Mapping[str, str] = dict(zip(LABELS, ("#C8553D", "#A87B00", "#3A7BC8", "#1E8A6A"), strict=True))
"""Label of a phase -> its colour, at least 3:1 against white and against the dark page; never alone, always
beside the label."""

GLOSS: Mapping[int | None, str] = {
    1: "memorises its training data",
    2: "answers new keys, not new anchor pairs",
    3: "composes the rules",
    None: "no phase",
}
"""Phase -> what such a model does."""


@documented
@dataclass(frozen=True)
class Phase:
    """The phase by definition, or why there is none.

    Source: the phases of arXiv 2405.05409 and 2501.08537.
    """

    phase: Literal[1, 2, 3] | None
    """1 memorises, 2 generalises in distribution, 3 composes rules; None: undecided."""
    commutative: bool | None
    """In Phase 2, whether commutativity is >= .70; None elsewhere or where it is not defined."""
    reason: str
    """The numbers that decided, in words."""

    @property
    def label(self) -> str:
        """Short name: `Phase 2 with commutativity`, `undecided: underfit`, ..."""
        if self.phase is None:
            return f"undecided: {self.reason.split(':')[0]}"
        suffix = {True: " with commutativity", False: " without commutativity", None: ""}
        return f"Phase {self.phase}{suffix[self.commutative]}"

    @property
    def gloss(self) -> str:
        """What such a model does, in a few words."""
        return GLOSS[self.phase]

    @property
    def colour(self) -> str:
        """Its colour in pictures, in CSS; that of the text around it where it is none of the four."""
        return COLOURS.get(self.label, "currentColor")


def phase_by_definition(train: float, id: float, ood: float | None, commutativity: float | None) -> Phase:
    """The phase that four accuracies stand for.

    Args:
        train: accuracy on the training data, 0..1.
        id: accuracy on seen pairs at held-out (key, position), 0..1.
        ood: accuracy on unseen pairs against the inferential target, 0..1; None without unseen pairs.
        commutativity: share of mirrored sequences answered alike, 0..1; None without such pairs.

    Returns:
        Phase 1: ID < .90. Phase 2: ID >= .90 and OOD <= .50, with commutativity if that is >= .70.
        Phase 3: ID >= .90 and OOD > .50. No phase for train < .90 (underfit), for ID < .90 with
        OOD > .50 (no phase of the papers), for numbers that are not finite, or without unseen pairs.

    >>> phase_by_definition(train=1.0, id=0.99, ood=0.10, commutativity=0.88).label
    'Phase 2 with commutativity'
    >>> phase_by_definition(train=0.99, id=0.86, ood=0.96, commutativity=0.9).label
    'undecided: inconsistent'

    Source: the phases of arXiv 2405.05409 and 2501.08537.
    """
    if not all(math.isfinite(value) for value in (train, id, ood, commutativity) if value is not None):
        return Phase(None, None, "not finite: the model's numbers are NaN or infinite")
    if train < FIT_THRESHOLD:
        return Phase(
            None, None, f"underfit: train accuracy {train:.3f} is below {FIT_THRESHOLD:.2f}; train longer"
        )
    if ood is None:
        return Phase(None, None, "no unseen pair: every pair of this task is trained")
    numbers = f"train {train:.3f}, ID {id:.3f}, OOD {ood:.3f}"
    if id < ID_THRESHOLD:
        if ood > OOD_THRESHOLD:
            return Phase(None, None, f"inconsistent: {numbers}; no phase of the papers has these")
        return Phase(1, None, f"{numbers}: the training data are fit, held-out keys are not answered")
    if ood > OOD_THRESHOLD:
        return Phase(3, None, f"{numbers}: unseen pairs are composed")
    if commutativity is None:
        return Phase(2, None, f"{numbers}: held-out keys are answered, unseen pairs are not")
    return Phase(
        2,
        commutativity >= COMMUTATIVITY_THRESHOLD,
        f"{numbers}, commutativity {commutativity:.3f}: held-out keys are answered, unseen pairs are not",
    )
