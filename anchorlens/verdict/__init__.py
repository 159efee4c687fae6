"""Both verdicts: what a model's answers are by definition, and what its inside speaks for."""

from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.classify import classify
from anchorlens.verdict.forecast import TrajectoryPoint, trajectory
from anchorlens.verdict.mechanism import Evidence, Mechanism, Opinion
from anchorlens.verdict.readings import READINGS, take_readings
from anchorlens.verdict.verdict import Subject, Verdict

__all__ = [
    "LABELS",
    "READINGS",
    "Evidence",
    "Mechanism",
    "Opinion",
    "Subject",
    "TrajectoryPoint",
    "Verdict",
    "classify",
    "take_readings",
    "trajectory",
]
