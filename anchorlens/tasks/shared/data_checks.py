"""The comparison of training data with the task that evaluates the model: overlap and other targets.

A test is invalid if training sequences are held-out inputs, or if their targets are not the task's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Count, Name, Record
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor


@frozen_dataclass()
class Overlap(Record):
    """The numbers of training sequences that are also held-out test inputs."""

    n_sequences: Count
    """The number of training sequences that were checked."""
    counts: Mapping[Name, Count]
    """The number of training sequences that are test inputs of each metric (`id`, `ood`)."""

    @property
    def there_is_some(self) -> bool:
        """Whether any held-out input is in the training data."""
        return any(self.counts.values())

    def in_words(self, asks: Mapping[str, str]) -> str:
        """Return the counts as text.

        Args:
            asks: the test inputs of each metric, as text.

        >>> Overlap(32_000, {"id": 0, "ood": 4_000}).in_words({"id": "held-out keys", "ood": "unseen pairs"})
        'of 32,000 training sequences, 4,000 are in the test on unseen pairs'
        """
        parts = (f"{n:,} are in the test on {asks.get(name, name)}" for name, n in self.counts.items() if n)
        return f"of {self.n_sequences:,} training sequences, {' and '.join(parts)}"


MOST_OTHER = 0.1
"""The proportion of other targets above which the task is not that of the training data. A model that fits
these data cannot reach an ID accuracy of 0.90 with the task's answers."""


@frozen_dataclass()
class OtherTargets(Record):
    """The number of training targets that differ from the task's targets."""

    n_sequences: Count
    """The number of training sequences that were compared."""
    n_other: Count
    """The number of training sequences whose target is not the task's, or that are not inputs of the task."""
    reordered: bool = False
    """Whether the targets are the task's targets in another order, so that they do not match their tokens."""

    @property
    def of_another_task(self) -> bool:
        """Whether more than a tenth of the training targets differ from the task's targets."""
        return self.n_other > MOST_OTHER * self.n_sequences

    def in_words(self) -> str:
        """Return the counts and the advice for the user as text.

        >>> OtherTargets(3_000, 3_000).in_words()
        '3,000 of 3,000 training targets differ from those of this task. Give the task of the training data'
        >>> OtherTargets(3_000, 2).in_words()
        '2 of 3,000 training targets differ from those of this task: wrong labels, or another task'
        """
        counts = f"{self.n_other:,} of {self.n_sequences:,} training targets differ from those of this task"
        if self.of_another_task and self.reordered:
            return (
                f"{counts}. They are the targets of this task in another order than the tokens. Give tokens "
                "and targets in the same order"
            )
        if self.of_another_task:
            return f"{counts}. Give the task of the training data"
        return f"{counts}: wrong labels, or another task"


def compared(batch: TokenBatch, own: Int[Tensor, "batch ..."] | None) -> OtherTargets | None:
    """Compare the targets of training data with the task's targets.

    Args:
        batch: the training data.
        own: the targets that the task's `targets_of` returns for the tokens, or None for unknown targets.
    """
    if own is None:
        return None
    given, wanted = (part.numpy().reshape(len(batch), -1) for part in (batch.targets, own))
    known = (wanted != IGNORE).any(axis=1)
    if not known.any():
        return None
    given, wanted = given[known], wanted[known]
    differs = ((wanted != IGNORE) & (given != wanted)).any(axis=1)
    alike = bool(differs.any()) and np.array_equal(np.sort(given, axis=0), np.sort(wanted, axis=0))
    return OtherTargets(len(given), int(differs.sum()), alike)
