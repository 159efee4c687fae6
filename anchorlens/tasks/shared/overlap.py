"""The overlap of training and test data: training sequences that are held-out inputs.

The test is then invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import documented
from anchorlens.records import Count, Name, Record

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor


@documented
@dataclass(frozen=True)
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


def overlap_of_prompts(
    trained: Int[Tensor, "batch pos"], held_out: Mapping[str, Int[Tensor, "question pos"]], end: int
) -> Overlap:
    """Count the training sequences whose prompt is also in the test data.

    Args:
        trained: the training sequences.
        held_out: a map from the name of each metric to its test sequences.
        end: the token that ends a prompt. A sequence without this token is not counted.
    """
    tests = {name: set(_prompts(tokens, end)) for name, tokens in held_out.items()}
    counts = dict.fromkeys(tests, 0)
    for prompt in _prompts(trained, end):
        for name, test in tests.items():
            counts[name] += prompt in test
    return Overlap(len(trained), counts)


def _prompts(tokens: Int[Tensor, "batch pos"], end: int) -> Iterator[bytes]:
    """Yield the prompt of each sequence, up to its first `end`, as bytes."""
    ends = tokens == end
    lengths = (ends.int().argmax(dim=1) + 1).tolist()
    rows = tokens.numpy()  # training data may be narrower than int64
    for row, length, there in zip(rows, lengths, ends.any(dim=1).tolist(), strict=True):
        if there:
            yield row[:length].astype(np.int64).tobytes()
