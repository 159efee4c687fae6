"""Independent random streams from one seed, without any use of the global random state."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from anchorlens.texts import safe_repr

Stream = Literal[
    "initialisation", "data", "order", "evaluation", "probe", "loss", "exceptions", "weight noise"
]
_STREAMS: tuple[Stream, ...] = get_args(Stream)
"""The names of the streams; new names come last, so that existing streams do not change."""


def seed_sequence(seed: int, stream: Stream, *counters: int) -> np.random.SeedSequence:
    """Return the seed of one stream of a run.

    Streams are independent of each other. Two runs that differ only in gamma therefore use the same data in
    the same order. `counters`, such as the epoch, select a part of a stream. A part of the stream does not
    depend on the earlier parts. An interrupted run can therefore be resumed.

    Raises:
        ValueError: If `seed` is not an integer that is at least 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {safe_repr(seed)}. Use another seed")
    return np.random.SeedSequence([int(seed), _STREAMS.index(stream), *counters])


def generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    """Create a NumPy generator for one stream of a run (see `seed_sequence`)."""
    return np.random.default_rng(seed_sequence(seed, stream, *counters))
