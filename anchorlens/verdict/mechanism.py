"""What the inside of a model says: a phase with probabilities, and what each reading contributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anchorlens.configuration import documented
from anchorlens.phases import Phase

LABELS = ("Phase 1", "Phase 2 without commutativity", "Phase 2 with commutativity", "Phase 3")
"""What the mechanism verdict tells apart."""

PHASES: Mapping[str, tuple[int, bool | None]] = {
    LABELS[0]: (1, None),
    LABELS[1]: (2, False),
    LABELS[2]: (2, True),
    LABELS[3]: (3, None),
}
"""Label -> phase, and in Phase 2 whether it is commutative."""


@documented
@dataclass(frozen=True)
class Evidence:
    """One reading, where it lies in each phase, and what it says."""

    reading: str
    """`probe.field`, for example `v_similarity.centred_gap`."""
    probe: str
    """The probe it comes from."""
    meaning: str
    """What the number is, in a few words."""
    value: float | None
    """The reading, normalised so that width and depth do not show; None where the probe gives none."""
    ranges: Mapping[str, tuple[float, float]]
    """Label -> where the middle 80 % of the checkpoints of that phase lie that the verdict was fit on."""
    vote: str | None
    """The label it speaks for most; None where it speaks for none."""
    weight: float
    """How much, in nats: its part of the log-odds of that label over the mean of all labels, >= 0."""


@documented
@dataclass(frozen=True)
class Mechanism:
    """The phase that a model's inside speaks for; answers on unseen pairs are never looked at."""

    phase: Phase
    """The most probable phase, or why there is none."""
    probabilities: Mapping[str, float] | None
    """Label -> 0..1, sum 1; None where the readings could not be taken."""
    evidence: tuple[Evidence, ...]
    """Every reading, the one that says most first."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return {
            "phase": self.phase.phase,
            "commutative": self.phase.commutative,
            "label": self.phase.label,
            "reason": self.phase.reason,
            "probabilities": None if self.probabilities is None else dict(self.probabilities),
            "readings": [asdict(evidence) for evidence in self.evidence],
        }
