"""OtherTargets: how many training targets are not those of the task that a model is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import documented
from anchorlens.records import Count, Record
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

MOST_OTHER = 0.1
"""Share of other targets above which the task is not that of the training data. A model that fits such data
cannot reach the ID accuracy of .90 by the task's own answers."""


@documented
@dataclass(frozen=True)
class OtherTargets(Record):
    """Training targets that are not what the task asks."""

    n_sequences: Count
    """Training sequences that were compared."""
    n_other: Count
    """Those with another target than the task gives them, or that ask nothing of the task."""
    reordered: bool = False
    """Whether the targets are the task's own in another order: they do not belong to their tokens."""

    @property
    def of_another_task(self) -> bool:
        """Whether these are too many for labels that are wrong here and there: over a tenth."""
        return self.n_other > MOST_OTHER * self.n_sequences

    def in_words(self) -> str:
        """The counts, and what to do.

        >>> OtherTargets(3_000, 3_000).in_words()
        '3,000 of 3,000 training targets are not what this task asks; give the task that it was trained on'
        >>> OtherTargets(3_000, 2).in_words()
        '2 of 3,000 training targets are not what this task asks: wrong labels, or another task'
        """
        counts = f"{self.n_other:,} of {self.n_sequences:,} training targets are not what this task asks"
        if self.of_another_task and self.reordered:
            return (
                f"{counts}: they are its targets in another order, and do not belong to their tokens; give "
                "tokens and targets in the same order"
            )
        if self.of_another_task:
            return f"{counts}; give the task that it was trained on"
        return f"{counts}: wrong labels, or another task"


def compared(batch: TokenBatch, own: Int[Tensor, "batch ..."] | None) -> OtherTargets | None:
    """Compare the targets of training data with the task's own.

    Args:
        batch: training data.
        own: what `targets_of` of the task gives for their tokens.
    """
    if own is None:
        return None
    given, wanted = (part.numpy().reshape(len(batch), -1) for part in (batch.targets, own))
    known = (wanted != IGNORE).any(axis=1)
    if not known.any():
        return None
    given, wanted = given[known], wanted[known]
    differs = ((wanted != IGNORE) & (given != wanted)).any(axis=1)
    alike = bool(differs.any()) and all(
        np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(given.T, wanted.T, strict=True)
    )
    return OtherTargets(len(given), int(differs.sum()), alike)
