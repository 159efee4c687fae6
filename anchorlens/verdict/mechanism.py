"""What the inside of a model says: a phase with probabilities, twice, and what each reading contributed.

*By the probes*: from activations of trained pairs and from weights. *By what it decodes*: from activations
of unseen pairs besides. Whether the training data are fit is asked of training sequences; answers on unseen
pairs are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch

from anchorlens import probes
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.phases import FIT_THRESHOLD, LABELS, PHASES, Phase
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.questions import QuestionModel, Values
from anchorlens.verdict.readings import MEASURED, OF_ANY_TASK, READINGS, take_readings
from anchorlens.verdict.verdict import Evidence, Mechanism, Posterior, in_words

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

SAYS_NOTHING = 0.05
"""Nats: a reading that raises no odds by more has no vote."""


def phase_by_mechanism(
    model: HookedTransformer,
    task: Task,
    shape: Mapping[str, Any] | None = None,
    *,
    train: Accuracy | None = None,
    void: Phase | None = None,
) -> Mechanism:
    """The phase that a model's readings speak for.

    Args:
        model: any HookedTransformer.
        task: what it was trained on; where it has no anchors there is no such verdict, and what can
            be read of the weights is listed alone.
        shape: `variant`, as far as it is known; the rest is read from the model.
        train: accuracy on its training data; below .90 the phases do not describe it. None where these are
            not known: the phase is then that of a model which has fit them.
        void: why its answers rule every phase out; no reading is then taken.

    Returns:
        The most probable phase with the probability of each, or no phase with the reason: what is `void`,
        weights that are not finite, underfit, a task unlike that of the calibration, or no phase that is
        probable enough. Readings are listed if they can be taken and nothing is void. A shape outside the
        calibration makes the probabilities less sure.
    """
    if not task.has_anchors:
        why = f"the mechanism verdict is the two-anchor task's own, and this one is {task.kind}"
        return _nothing(Phase.undecided("outside the calibration", why), tuple(_of_weights(model, task)))
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return _nothing(Phase.undecided("not finite", "the weights hold NaN or infinity"))
    if void is not None:
        return _nothing(void)
    anchors = cast("AnchorTask", task)
    try:
        values = take_readings(model, anchors)
    except ValueError as error:
        return _nothing(Phase.undecided("no readings", str(error)))
    fitted, cfg = calibration(), model.cfg
    shape = {"n_layers": cfg.n_layers, "n_heads": cfg.n_heads, "d_model": cfg.d_model, **(shape or {})}
    temperature = fitted.temperature(shape)

    def posterior(by: QuestionModel) -> Posterior:
        probabilities = by.probabilities(values, temperature)
        if train is not None and train.value < FIT_THRESHOLD:
            why = f"train accuracy {train} is below {FIT_THRESHOLD:.2f}; train longer"
            return Posterior(Phase.undecided("underfit", why), probabilities)
        if not is_of_the_papers(anchors):
            why = "the task is not that of the papers"
            return Posterior(Phase.undecided("outside the calibration", why), probabilities)
        return Posterior(named(probabilities, by.least_probability), probabilities)

    decoding = posterior(fitted.by_decoding)
    return Mechanism(
        phase=decoding.phase,
        probabilities=decoding.probabilities,
        evidence=evidence(fitted.by_decoding, values, temperature),
        by_probes=posterior(fitted.by_probes),
        outside=tuple(fitted.outside(shape)),
    )


def _nothing(phase: Phase, readings: tuple[Evidence, ...] = ()) -> Mechanism:
    """A verdict without probabilities, and readings that speak for no phase."""
    return Mechanism(phase, None, readings, by_probes=Posterior(phase, None))


def _of_weights(model: HookedTransformer, task: Task) -> Iterator[Evidence]:
    """What can be read of the weights of a model, of a task that nothing was calibrated on."""
    for reading in OF_ANY_TASK:
        probe, _ = MEASURED[reading.measurement]
        try:
            result = probes.apply(probe, model, task)
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # of another architecture, or without what the probe looks at
        value = reading.of(getattr(result, reading.field, None), getattr(model, "cfg", None))
        if value is not None:
            about = (reading.name, reading.probe, reading.meaning)
            yield Evidence(*about, value, ranges={}, vote=None, weight=0.0, sees=reading.sees)


def evidence(fitted: QuestionModel, values: Values, temperature: float = 1.0) -> tuple[Evidence, ...]:
    """What each reading contributes, the one that moves most first."""
    found = []
    for reading in READINGS:
        odds = fitted.raised(values, reading.name, temperature)
        label, weight = max(odds.items(), key=lambda item: item[1])
        speaks = weight > SAYS_NOTHING
        value = values[reading.name]
        votes = {which: answer.votes.get(reading.name) for which, answer in fitted.answers.items()}
        found.append(
            Evidence(
                reading=reading.name,
                probe=reading.probe,
                meaning=reading.meaning,
                value=value,
                ranges=fitted.ranges.get(reading.name, {}),
                vote=label if speaks else None,
                weight=weight if speaks else 0.0,
                odds=odds if speaks else {},
                alone={which: vote.says(value) for which, vote in votes.items() if vote is not None},
                sees=reading.sees,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.weight))


def named(probabilities: Mapping[str, float], least: float) -> Phase:
    """The most probable phase, if it is probable enough, its two forms of Phase 2 taken together.

    Phase 2 says with or without commutativity where one of them is that probable among the two.

    >>> named(dict(zip(LABELS, (0.0, 0.28, 0.4, 0.32))), least=0.6)
    Phase(number=2, commutative=None, reason='Phase 2 with commutativity, 40 %; Phase 3, 32 %', cause=None)
    """
    words = in_words(probabilities)
    phases: dict[Any, float] = {}
    for label in LABELS:
        phase = PHASES[label][0]
        phases[phase] = phases.get(phase, 0.0) + probabilities[label]
    best = max(phases, key=phases.__getitem__)
    if phases[best] < least:
        return Phase.undecided("ambiguous", f"no phase has a probability of {least:.0%} or more: {words}")
    if best != 2:
        return Phase(best, None, words)
    _, without, commutes, _ = (probabilities[label] for label in LABELS)
    share = commutes / (without + commutes)
    commutative = True if share >= least else False if share <= 1 - least else None
    return Phase(2, commutative, words)


def shape_of(config: object) -> dict[str, Any] | None:
    """What the calibration knows of a model's shape; None of a model that is no transformer."""
    if not isinstance(config, ModelConfig):
        return None
    return {name: getattr(config, name) for name in ("variant", "n_layers", "n_heads", "d_model")}


def is_of_the_papers(task: AnchorTask) -> bool:
    """Whether a task is one that the calibration knows: the papers' anchors, in either regime."""
    return task == AnchorTask(
        regime=task.regime, split_modulus=task.split_modulus, noise_obeys_split=task.noise_obeys_split
    )
