"""What the inside of a model says: a phase with probabilities, and what each reading contributed.

It goes by the probes' numbers alone. Whether the training data are fit is asked of training sequences;
answers on unseen pairs are never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import documented
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.phases import FIT_THRESHOLD, PHASES, Phase
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.calibration import LogisticModel, calibration
from anchorlens.verdict.readings import READINGS, take_readings
from anchorlens.views import drawn

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

LEAST_PROBABILITY = 0.5
"""A phase less probable than this is not named."""


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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evidence:
        """Read it from JSON data: its fields."""
        ranges = {label: (low, high) for label, (low, high) in values["ranges"].items()}
        return cls(**{**values, "ranges": ranges})


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

    def _repr_html_(self) -> str:
        return drawn("mechanism_html")(self)

    def __repr__(self) -> str:
        return f"Mechanism({self.phase.label}; {_in_words(self.probabilities or {}) or self.phase.reason})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return {
            **self.phase.to_dict(),
            "probabilities": None if self.probabilities is None else dict(self.probabilities),
            "readings": [asdict(evidence) for evidence in self.evidence],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mechanism:
        """Read what `to_dict` gave, also after a way through JSON.

        Raises:
            KeyError: something is missing.
        """
        evidence = tuple(map(Evidence.from_dict, values["readings"]))
        return cls(Phase.from_dict(values), values["probabilities"], evidence)


def phase_by_mechanism(
    model: HookedTransformer,
    task: Task,
    train: Accuracy | None,
    shape: Mapping[str, Any] | None = None,
) -> Mechanism:
    """The phase that a model's readings speak for.

    Args:
        model: any HookedTransformer.
        task: what it was trained on; of another kind than AnchorTask there is no such verdict.
        train: accuracy on its training data; below .90 the phases do not describe it. None where these are
            not known: the phase is then that of a model which has fit them.
        shape: `variant`, as far as it is known; the rest is read from the model.

    Returns:
        The most probable phase with the probability of each, or no phase with the reason: weights that
        are not finite, underfit, a model or task unlike those of the calibration, or no phase with a
        probability of .5. Readings are listed in any case, if they can be taken.
    """
    if not isinstance(task, AnchorTask):
        why = f"the mechanism verdict is the two-anchor task's own, and this one is {task.kind}"
        return Mechanism(Phase.undecided("outside the calibration", why), None, ())
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return Mechanism(Phase.undecided("not finite", "the weights hold NaN or infinity"), None, ())
    try:
        values = take_readings(model, task)
    except ValueError as error:
        return Mechanism(Phase.undecided("no readings", str(error)), None, ())
    fitted = calibration()
    probabilities = fitted.final.probabilities(values)
    cfg = model.cfg
    shape = {"n_layers": cfg.n_layers, "n_heads": cfg.n_heads, "d_model": cfg.d_model, **(shape or {})}
    outside = fitted.outside(shape)
    if not is_of_the_papers(task):
        outside.append("the task is not that of the papers")
    outside += fitted.final.unfamiliar(values)
    label = named(probabilities)
    if train is not None and train.value < FIT_THRESHOLD:
        phase = Phase.undecided(
            "underfit", f"train accuracy {train} is below {FIT_THRESHOLD:.2f}; train longer"
        )
    elif outside:
        phase = Phase.undecided("outside the calibration", "; ".join(outside))
    elif label is None:
        why = f"no phase has a probability of {LEAST_PROBABILITY} ({_in_words(probabilities)})"
        phase = Phase.undecided("torn", why)
    else:
        phase = Phase(*PHASES[label], _in_words(probabilities))
    return Mechanism(phase, probabilities, evidence(fitted.final, values))


def evidence(fitted: LogisticModel, values: Mapping[str, float | None]) -> tuple[Evidence, ...]:
    """What each reading contributes, the one that says most first; then those the fit does not use."""
    parts = dict(zip(fitted.readings, fitted.contributions(values).T, strict=True))
    found = []
    for reading in READINGS:
        part = parts.get(reading.name, np.zeros(1))
        speaks = part.max() > 0
        found.append(
            Evidence(
                reading=reading.name,
                probe=reading.probe,
                meaning=reading.meaning,
                value=values[reading.name],
                ranges=fitted.ranges.get(reading.name, {}),
                vote=fitted.labels[int(part.argmax())] if speaks else None,
                weight=float(part.max()) if speaks else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.weight))


def named(probabilities: Mapping[str, float]) -> str | None:
    """The most probable label, if its probability is .5 or more."""
    label, probability = max(probabilities.items(), key=lambda item: item[1])
    return label if probability >= LEAST_PROBABILITY else None


def _in_words(probabilities: Mapping[str, float]) -> str:
    return ", ".join(f"{label} {probability:.2f}" for label, probability in probabilities.items())


def shape_of(config: ModelConfig) -> dict[str, Any]:
    """What the calibration knows of a model's shape."""
    return {name: getattr(config, name) for name in ("variant", "n_layers", "n_heads", "d_model")}


def is_of_the_papers(task: AnchorTask) -> bool:
    """Whether a task is one that the calibration knows: the papers' anchors, in either regime."""
    return task == AnchorTask(
        regime=task.regime, split_modulus=task.split_modulus, noise_obeys_split=task.noise_obeys_split
    )
