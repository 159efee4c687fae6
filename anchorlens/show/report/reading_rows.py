"""The readings of several models as rows, in which the readings that changed the verdicts most come first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from anchorlens.verdict.readings import READINGS
from anchorlens.verdict.verdict import Evidence

MOST_MOVED = 6
"""The largest number of readings in the first list of `reading_rows`."""


class ReadingRow(NamedTuple):
    """One reading of several models."""

    reading: str
    """The name of the reading, `probe.field`."""
    meaning: str
    """The meaning of the reading, in a few words."""
    evidence: Sequence[Evidence | None]
    """The evidence of each model, or None if the model does not have the reading."""


def reading_rows(of_models: Sequence[Sequence[Evidence]]) -> tuple[list[ReadingRow], list[ReadingRow]]:
    """Sort the readings of several models by their contributions to the verdicts.

    Args:
        of_models: the readings of each model, the strongest evidence first.

    Returns:
        Two lists of readings. The first list contains at most `MOST_MOVED` readings that vote for a label. In
        this list, the first reading of every model comes before any second reading. The second list contains
        all other readings, in the order of the probes.
    """
    by_name = [{one.reading: one for one in evidence} for evidence in of_models]
    votes = [[one.reading for one in evidence if one.vote is not None] for evidence in of_models]
    in_turn = [name for turn in itertools.zip_longest(*votes) for name in turn if name is not None]
    moved = list(dict.fromkeys(in_turn))[:MOST_MOVED]
    order = {reading.name: k for k, reading in enumerate(READINGS)}
    others = [name for name in dict.fromkeys(itertools.chain(*by_name)) if name not in moved]
    others.sort(key=lambda name: order.get(name, len(order)))

    def row(name: str) -> ReadingRow:
        evidence = [known.get(name) for known in by_name]
        return ReadingRow(name, next(one.meaning for one in evidence if one is not None), evidence)

    return list(map(row, moved)), list(map(row, others))
