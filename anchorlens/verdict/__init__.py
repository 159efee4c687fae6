"""Both verdicts: what a model's answers are by definition, and what its inside speaks for."""

from anchorlens.verdict.classify import classify
from anchorlens.verdict.forecast import Moment, trajectory
from anchorlens.verdict.mechanism import LABELS, Evidence, Mechanism
from anchorlens.verdict.readings import READINGS, take_readings
from anchorlens.verdict.verdict import Subject, Verdict

__all__ = [
    "LABELS",
    "READINGS",
    "Evidence",
    "Mechanism",
    "Moment",
    "Subject",
    "Verdict",
    "classify",
    "take_readings",
    "trajectory",
]
