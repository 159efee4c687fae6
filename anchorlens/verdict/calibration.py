"""The fitted part of the verdict: what `examples/calibrate.py` learnt from a zoo, read from one JSON file."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from anchorlens.configuration import documented

FORMAT_VERSION = 1


@documented
@dataclass(frozen=True, eq=False)
class LogisticModel:
    """Multinomial logistic regression on standardised readings, its probabilities scaled by a temperature.

    z = clip((value - mean) / scale, -limit, limit), 0 where there is no value;
    p = softmax((intercept + coefficients z) / temperature).
    """

    labels: tuple[str, ...]
    """What it tells apart."""
    readings: tuple[str, ...]
    """What it goes by, `probe.field`."""
    mean: np.ndarray
    """[reading] Over the checkpoints it was fit on."""
    scale: np.ndarray
    """[reading] Standard deviation over them."""
    missing: np.ndarray
    """[reading] Value taken where a probe gives none."""
    coefficients: np.ndarray
    """[label, reading] Log-odds per standard deviation; they sum to 0 over labels."""
    intercept: np.ndarray
    """[label] Likewise."""
    temperature: float
    """Above 1: the probabilities are less sure than the fit was."""
    limit: float
    """Standard deviations from the mean beyond which a reading counts no more."""
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]
    """Reading -> label -> where the middle 80 % of the fitted checkpoints of that label lie."""

    def contributions(self, values: Mapping[str, float | None]) -> np.ndarray:
        """[label, reading] What each reading adds to the log-odds of each label over their mean, in nats."""
        given = [values.get(name) for name in self.readings]
        filled = np.array(
            [miss if value is None else value for value, miss in zip(given, self.missing, strict=True)], float
        )
        z = np.clip((filled - self.mean) / self.scale, -self.limit, self.limit)
        return self.coefficients * z / self.temperature

    def probabilities(self, values: Mapping[str, float | None]) -> dict[str, float]:
        """Label -> probability, 0..1, sum 1."""
        logits = self.contributions(values).sum(axis=1) + self.intercept / self.temperature
        odds = np.exp(logits - logits.max())
        return dict(zip(self.labels, (odds / odds.sum()).tolist(), strict=True))

    def unfamiliar(self, values: Mapping[str, float | None]) -> list[str]:
        """Readings it uses that are further from the mean than any that counts more, in words."""
        found = []
        used = np.abs(self.coefficients).sum(axis=0) > 0
        for name, mean, scale, counts in zip(self.readings, self.mean, self.scale, used, strict=True):
            value = values.get(name)
            if counts and value is not None and abs(value - mean) > self.limit * scale:
                found.append(f"{name} {value:.3g} is {abs(value - mean) / scale:.1f} standard deviations off")
        return found

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LogisticModel:
        """Read it from the JSON file's content."""
        readings: Mapping[str, Mapping[str, Any]] = content["readings"]
        labels = tuple(content["intercept"])
        column = {
            key: [reading[key] for reading in readings.values()] for key in ("mean", "scale", "missing")
        }
        return cls(
            labels=labels,
            readings=tuple(readings),
            **{key: np.array(values, float) for key, values in column.items()},
            coefficients=np.array(
                [[reading["coefficients"][label] for reading in readings.values()] for label in labels]
            ),
            intercept=np.array([content["intercept"][label] for label in labels]),
            temperature=float(content["temperature"]),
            limit=float(content["limit"]),
            ranges={
                name: {label: (low, high) for label, (low, high) in reading["ranges"].items()}
                for name, reading in readings.items()
            },
        )


@documented
@dataclass(frozen=True, eq=False)
class Calibration:
    """Everything fitted: the mechanism verdict, the early verdicts, and where they hold."""

    final: LogisticModel
    """For a trained model."""
    early: Mapping[float, LogisticModel]
    """Fraction of the steps taken, 0..1 -> for a checkpoint at about that moment."""
    architecture: Mapping[str, Sequence[Any]]
    """Field of ModelConfig -> [smallest, largest] of the zoo, or the values there were."""
    provenance: Mapping[str, Any]
    """How it was made: the command, how many checkpoints, versions."""

    def outside(self, shape: Mapping[str, Any]) -> list[str]:
        """What of a model lies outside the zoo, in words.

        Args:
            shape: fields as in `architecture`; those that are not known are left out.
        """
        found = []
        for name, known in self.architecture.items():
            value = shape.get(name)
            if value is None:
                continue
            if all(isinstance(number, int | float) for number in known):
                if not min(known) <= value <= max(known):
                    found.append(f"{name} {value} is outside {min(known)}..{max(known)}")
            elif value not in known:
                found.append(f"{name} {value!r} is none of {', '.join(map(repr, known))}")
        return found

    def early_model(self, fraction: float) -> LogisticModel | None:
        """The early verdict for the nearest moment, on a log scale; None further than a factor 2 from any."""
        if not self.early or fraction <= 0:
            return None
        distance, nearest = min((abs(np.log(fraction / moment)), moment) for moment in self.early)
        return self.early[nearest] if distance <= np.log(2) else None


@functools.cache
def calibration() -> Calibration:
    """The calibration that this version ships."""
    content = json.loads(
        resources.files("anchorlens.verdict").joinpath("calibration.json").read_text("utf-8")
    )
    assert content["format_version"] == FORMAT_VERSION
    return Calibration(
        final=LogisticModel.from_dict(content["final"]),
        early={float(moment): LogisticModel.from_dict(fit) for moment, fit in content["early"].items()},
        architecture=content["architecture"],
        provenance=content["provenance"],
    )
