"""The early verdict: the phase a run will end in, from the inside of one of its early checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anchorlens.configuration import documented


@documented
@dataclass(frozen=True)
class Moment:
    """One checkpoint of a run's trajectory, and what it lets expect of the run's end."""

    step: int
    """Optimizer steps taken."""
    fraction: float
    """Of the steps that the run is to take, 0..1."""
    train: float
    """Accuracy on training data, 0..1."""
    id: float
    """On held-out keys, 0..1."""
    ood: float | None
    """On unseen pairs, 0..1; None where every pair is trained."""
    now: str
    """Its phase by behaviour now, a label such as `Phase 1` or `undecided: underfit`."""
    forecast: Mapping[str, float] | None
    """Label of the final phase -> probability, from readings alone; None where there is no forecast."""
