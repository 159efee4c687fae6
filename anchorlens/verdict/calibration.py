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
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.questions import QuestionModel, Regime

FORMAT_VERSION = 3


@documented
@dataclass(frozen=True, eq=False)
class OfRegime:
    """Both verdicts by the inside, for one regime."""

    by_probes: QuestionModel
    """By the readings that see trained pairs and weights alone."""
    by_decoding: QuestionModel
    """By those that see activations of unseen pairs; whether it generalises is asked as by the probes."""


@documented
@dataclass(frozen=True, eq=False)
class Calibration:
    """Everything fitted: the verdicts by the inside, the early verdicts, and where they hold."""

    regimes: Mapping[Regime, OfRegime]
    """Regime -> its verdicts: in `reasoning` they name a phase, in `conflict` a solution."""
    early: Mapping[float, QuestionModel]
    """Fraction of the steps taken, 0..1 -> for a checkpoint at about that moment."""
    known: Mapping[str, Sequence[Any]]
    """Field of a model or its task -> [smallest, largest] of the zoo, or the values there were."""
    provenance: Mapping[str, Any]
    """How it was made: the command, how many checkpoints, versions."""

    def of(self, task: AnchorTask) -> OfRegime:
        """The verdicts for models of a task."""
        found = self.regimes["conflict" if task.in_conflict else "reasoning"]
        if task.in_conflict or task.commutes:
            return found
        return OfRegime(found.by_probes.without_commutativity(), found.by_decoding.without_commutativity())

    def outside(self, shape: Mapping[str, Any]) -> list[str]:
        """What of a model and its task lies outside the zoo, in words.

        Args:
            shape: fields as in `known`; those that are left out count as inside.
        """
        return [words for words, _ in self._distances(shape)]

    def distance(self, shape: Mapping[str, Any]) -> float:
        """How far a model and its task are from the zoo, >= 0.

        A field that is r times beyond the zoo's range is log2 r away, a variant of another kind 1.
        """
        return sum(distance for _, distance in self._distances(shape))

    def _distances(self, shape: Mapping[str, Any]) -> list[tuple[str, float]]:
        """(words, distance) of every field outside."""
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
    regimes: dict[Regime, OfRegime] = {
        regime: OfRegime(**{name: QuestionModel.from_dict(fit) for name, fit in fits.items()})
        for regime, fits in content["regimes"].items()
    }
    return Calibration(
        regimes=regimes,
        early={float(moment): QuestionModel.from_dict(fit) for moment, fit in content["early"].items()},
        known=content["known"],
        provenance=content["provenance"],
    )
