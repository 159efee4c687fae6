"""The papers' side claims as readings of a figure's JSON: in which seeds it is so.

A figure's main claim is not among them: that has an effect and a word (main_claims.toml). A reading with
parts (depths, values of gamma, weight decays) says in how many of them it is so; a seed without what is asked
(no run that has fit its data, say) says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Numbers = Mapping[str, Any]
"""A figure's JSON."""


ID, OOD = 0.9, 0.5
"""Accuracy from which on held-out keys, and above which unseen pairs, count as answered: the phases'."""
IN_ORDER = 0.75
"""We call an order confirmed when it holds in at least this share of the pairs of runs (.5 is chance)."""
TAU = 2 * IN_ORDER - 1
"""The same for Kendall's tau: pairs in order minus those that are not."""
MOST = 0.5
"""Share of the answers to (4, 3) above which a run has that solution."""
HALF = 0.5
"""Of a Gaussian's stable rank: below, the neurons have condensed. Of another number: much less than it."""


@dataclass(frozen=True)
class Reading:
    """One thing that a paper says, asked of every seed."""

    says: str
    """In words."""
    by_seed: Mapping[str, Sequence[bool]]
    """Seed -> whether it is so, in each part; empty where nothing is known."""


def one_each(values: Mapping[str, bool | None]) -> dict[str, list[bool]]:
    """A reading without parts: seed -> whether it is so; None is unknown."""
    return {seed: [] if value is None else [value] for seed, value in values.items()}


def mostly(shares: Mapping[str, float | None]) -> dict[str, list[bool]]:
    """Seed -> whether three quarters of its pairs are in order."""
    return one_each({seed: None if share is None else share >= IN_ORDER for seed, share in shares.items()})


def rising(along: Mapping[str, Any], *, falls: bool = False) -> dict[str, list[bool]]:
    """Of the pairs of runs that differ, whether three quarters rise, or fall."""
    shares = {seed: found["rising_share"] for seed, found in along.items()}
    return mostly({seed: None if s is None else 1 - s if falls else s for seed, s in shares.items()})


Claims = Mapping[str, Callable[[Numbers], list[Reading]]]
"""Figure -> the readings of its JSON."""
