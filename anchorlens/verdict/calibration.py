"""The fitted part of the verdicts, which `research/calibrate.py` fits and stores in one JSON file."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from anchorlens.configuration import documented
from anchorlens.records import Record
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.question_model import QuestionModel, Regime

FORMAT_VERSION = 4
"""The version of the JSON file."""


@documented
@dataclass(frozen=True, eq=False)
class CalibrationRange:
    """The range of models and tasks that a verdict was fit on."""

    known: Mapping[str, Sequence[Any]]
    """The [smallest, largest] value, or the list of values, of each field of the calibration models and their
    tasks."""

    def outside(self, shape: Mapping[str, Any]) -> list[str]:
        """Describe the fields of a model and its task that are outside the calibration range.

        Args:
            shape: the fields of the model and its task, as in `known`. A missing field counts as inside the
                range.
        """
        return [words for words, _ in self._distances(shape)]

    def distance(self, shape: Mapping[str, Any]) -> float:
        """Compute the distance of a model and its task from the calibration models, at least 0.

        The distance is a sum over fields. A numeric field outside the range by a factor r adds log2 r to the
        distance. A field that is not numeric adds 1 if no calibration model has the field's value.
        """
        return sum(distance for _, distance in self._distances(shape))

    def _distances(self, shape: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Return (description, distance) of every field outside the calibration range."""
        found = []
        for name, known in self.known.items():
            value = shape.get(name)
            if value is None:
                continue
            if all(isinstance(number, int | float) for number in known):
                low, high = min(known), max(known)
                if not low <= value <= high:
                    factor = value / high if value > high else low / value
                    found.append((f"{name} {value} is outside {low}..{high}", math.log2(factor)))
            elif value not in known:
                found.append((f"{name} {value!r} is not one of {', '.join(map(repr, known))}", 1.0))
        return found


@documented
@dataclass(frozen=True, eq=False)
class OfRegime:
    """The probe and decoding verdicts for one kind of task, `reasoning` or `conflict`."""

    by_probes: QuestionModel
    """The probe verdict, which uses only readings of trained pairs and weights."""
    by_decoding: QuestionModel
    """The decoding verdict, which uses activations of unseen pairs. For the question whether the model
    generalises, the decoding verdict uses the readings of the probe verdict."""
    range: CalibrationRange
    """The calibration range of both verdicts."""


@documented
@dataclass(frozen=True, eq=False)
class Calibration(Record):
    """The fitted probe, decoding and early verdicts, and their calibration ranges."""

    regimes: Mapping[Regime, OfRegime]
    """The verdicts of each regime, which assign a phase in `reasoning` and a solution in `conflict`."""
    early: Mapping[float, QuestionModel]
    """The early verdict for checkpoints near each fraction of the run's steps, from 0 to 1."""
    early_range: CalibrationRange
    """The calibration range of the early verdicts."""
    provenance: Mapping[str, Any]
    """The origin of the calibration, with the command, the number of checkpoints and the versions."""

    def of(self, task: AnchorTask) -> OfRegime:
        """Return the fitted verdicts for models of a task."""
        found = self.regimes["conflict" if task.in_conflict else "reasoning"]
        if task.in_conflict or task.commutes:
            return found
        return replace(
            found,
            by_probes=found.by_probes.without_commutativity(),
            by_decoding=found.by_decoding.without_commutativity(),
        )

    def early_model(self, fraction: float) -> QuestionModel | None:
        """Return the early verdict that was fit at the nearest fraction of a run's steps, on a log scale.

        The result is `None` if the nearest fraction differs from `fraction` by more than a factor of 2.
        """
        if not self.early or fraction <= 0:
            return None
        distance, nearest = min((abs(math.log(fraction / moment)), moment) for moment in self.early)
        return self.early[nearest] if distance <= math.log(2) else None


@functools.cache
def calibration() -> Calibration:
    """Load the calibration that this version ships."""
    return Calibration.from_json(
        resources.files("anchorlens.verdict").joinpath("calibration.json").read_bytes()
    )
