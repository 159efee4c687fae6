"""The fitted part of the verdict: what `research/calibrate.py` learnt from a zoo, read from one JSON file."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from anchorlens.configuration import documented
from anchorlens.verdict.questions import QuestionModel

FORMAT_VERSION = 2


@documented
@dataclass(frozen=True, eq=False)
class Calibration:
    """Everything fitted: both mechanism verdicts, the early verdicts, and where they hold."""

    by_decoding: QuestionModel
    """For a trained model, by all readings."""
    by_probes: QuestionModel
    """For a trained model, by the readings that see trained pairs alone."""
    early: Mapping[float, QuestionModel]
    """Fraction of the steps taken, 0..1 -> for a checkpoint at about that moment."""
    architecture: Mapping[str, Sequence[Any]]
    """Field of ModelConfig -> [smallest, largest] of the zoo, or the values there were."""
    widening: float
    """What log-odds are divided by for a shape of another kind, or of twice the size, > 1: fit on shapes
    left out."""
    provenance: Mapping[str, Any]
    """How it was made: the command, how many checkpoints, versions."""

    def outside(self, shape: Mapping[str, Any]) -> list[str]:
        """What of a model lies outside the zoo, in words.

        Args:
            shape: fields as in `architecture`; those that are not known are left out.
        """
        return [words for words, _ in self._distances(shape)]

    def temperature(self, shape: Mapping[str, Any]) -> float:
        """What the log-odds of a model are divided by, >= 1: `widening` to the power of its distance.

        A field that is r times beyond the zoo's range is log2 r away, a variant of another kind 1.
        """
        return self.widening ** sum(distance for _, distance in self._distances(shape))

    def _distances(self, shape: Mapping[str, Any]) -> list[tuple[str, float]]:
        """(words, distance) of every field outside."""
        found = []
        for name, known in self.architecture.items():
            value = shape.get(name)
            if value is None:
                continue
            if all(isinstance(number, int | float) for number in known):
                low, high = min(known), max(known)
                if not low <= value <= high:
                    factor = value / high if value > high else low / value
                    found.append((f"{name} {value} is outside {low}..{high}", math.log2(factor)))
            elif value not in known:
                found.append((f"{name} {value!r} is none of {', '.join(map(repr, known))}", 1.0))
        return found

    def early_model(self, fraction: float) -> QuestionModel | None:
        """The early verdict for the nearest moment, on a log scale; None further than a factor 2 from any."""
        if not self.early or fraction <= 0:
            return None
        distance, nearest = min((abs(math.log(fraction / moment)), moment) for moment in self.early)
        return self.early[nearest] if distance <= math.log(2) else None


@functools.cache
def calibration() -> Calibration:
    """The calibration that this version ships."""
    content = json.loads(
        resources.files("anchorlens.verdict").joinpath("calibration.json").read_text("utf-8")
    )
    assert content["format_version"] == FORMAT_VERSION
    return from_dict(content)


def from_dict(content: Mapping[str, Any]) -> Calibration:
    """Read a calibration from the JSON file's content."""
    return Calibration(
        by_decoding=QuestionModel.from_dict(content["by_decoding"]),
        by_probes=QuestionModel.from_dict(content["by_probes"]),
        early={float(moment): QuestionModel.from_dict(fit) for moment, fit in content["early"].items()},
        architecture=content["architecture"],
        widening=content["widening"],
        provenance=content["provenance"],
    )
