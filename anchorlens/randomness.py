"""Independent random streams from one seed, so that nothing here ever touches global random state."""

from __future__ import annotations

from typing import Literal

import numpy as np

from anchorlens.texts import safe_repr

Stream = Literal[
    "initialisation", "data", "order", "evaluation", "probe", "loss", "exceptions", "weight noise"
]
_STREAMS: tuple[Stream, ...] = (
    "initialisation",
    "data",
    "order",
    "evaluation",
    "probe",
    "loss",
    "exceptions",
    "weight noise",
)
"""New ones come last, so that the others stay what they are."""


def seed_sequence(seed: int, stream: Stream, *counters: int) -> np.random.SeedSequence:
    """The seed of one stream of a run.

    Streams are independent of each other, so that two runs that differ in gamma alone see the same
    data in the same order. `counters` (an epoch, say) make a stream addressable: any part of it can
    be produced without what came before, which is what makes a killed run resumable.

    Raises:
        ValueError: `seed` is not a non-negative integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {safe_repr(seed)}")
    return np.random.SeedSequence([int(seed), _STREAMS.index(stream), *counters])


def generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    """A NumPy generator for one stream of a run (see `seed_sequence`)."""
    return np.random.default_rng(seed_sequence(seed, stream, *counters))
