"""What the inside of a model says: a phase with probabilities by the probes, and one by decoding.

*By the probes*: from activations of trained pairs and from weights alone; it knows nothing of unseen pairs.
*By decoding*: from activations of unseen pairs, in which the answer is almost computed. It decodes the
answer, and is not independent evidence. Where the training data conflict with the composition both name a
solution. Training sequences say whether the model fits its training data; neither verdict looks at answers on
unseen pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from anchorlens import probes
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.phases import FIT_THRESHOLD, LABELS, PHASES, SOLUTION_LABELS, Phase
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.questions import SOLUTIONS, QuestionModel, Values
from anchorlens.verdict.readings import MEASURED, OF_ANY_TASK, READINGS, take_readings
from anchorlens.verdict.verdict import ByProbes, Evidence, Posterior, in_words

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

NUMBERS = {label: number for label, (number, _) in PHASES.items()} | {"Phase 2": 2}
"""Label of a phase -> its number; Phase 2 may have no two forms."""
SAYS_NOTHING = 0.05
"""Nats: a reading that raises no odds by more has no vote."""


class Inside(NamedTuple):
    """Both verdicts of a model's inside."""

    by_probes: ByProbes
    by_decoding: Posterior


def read_inside(
    model: HookedTransformer,
    task: Task,
    shape: Mapping[str, Any] | None = None,
    *,
    train: Accuracy | None = None,
    void: Phase | None = None,
) -> Inside:
    """The phase, or in conflict the solution, that a model's readings speak for.

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
        weights that are not finite, underfit, a task without anchors, or no phase that is probable enough.
        Readings are listed if they can be taken and nothing is void. A shape or a task outside the
        calibration makes the probabilities less sure.
    """
    if not task.has_anchors:
        why = f"the verdicts by the probes and by decoding work on two-anchor tasks only, not on {task.kind}"
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
    fitted, known = calibration(), {**features(model, anchors), **(shape or {})}
    of_regime, distance = fitted.of(anchors), fitted.distance(known)

    def posterior(by: QuestionModel) -> Posterior:
        probabilities = by.probabilities(values, distance)
        if train is not None and train.value < FIT_THRESHOLD:
            why = f"train accuracy {train} is below {FIT_THRESHOLD:.2f}; train longer"
            return Posterior(Phase.undecided("underfit", why), probabilities)
        return Posterior(named(probabilities, by.least_probability), probabilities)

    probes_alone = posterior(of_regime.by_probes)
    return Inside(
        ByProbes(
            phase=probes_alone.phase,
            probabilities=probes_alone.probabilities,
            evidence=evidence(of_regime.by_probes, values, distance),
            outside=tuple(fitted.outside(known)),
        ),
        posterior(of_regime.by_decoding),
    )


def features(model: HookedTransformer, task: AnchorTask) -> dict[str, Any]:
    """What of a model and its task the calibration has a range for."""
    cfg = model.cfg
    return {
        "n_layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "d_model": cfg.d_model,
        "n_anchors": len(task.anchors),
        "n_keys": len(task.keys),
        "seq_len": task.seq_len,
        "chain_length": task.chain_length,
        "mlp": "dense" if getattr(cfg, "num_experts", None) is None else "mixture of experts",
        "exceptions": "some" if task.n_exceptions else "none",
    }


def _nothing(phase: Phase, readings: tuple[Evidence, ...] = ()) -> Inside:
    """Verdicts without probabilities, and readings that speak for no phase."""
    return Inside(ByProbes(phase, None, readings), Posterior(phase, None))


def _of_weights(model: HookedTransformer, task: Task) -> Iterator[Evidence]:
    """What can be read of the weights of a model, of a task that nothing was calibrated on."""
    for reading in OF_ANY_TASK:
        try:
            result = probes.apply(MEASURED[reading.measurement].probe, model, task)
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # of another architecture, or without what the probe looks at
        value = reading.of(getattr(result, reading.field, None), getattr(model, "cfg", None))
        if value is not None:
            about = (reading.name, reading.probe, reading.meaning)
            yield Evidence(*about, value, ranges={}, vote=None, weight=0.0, sees=reading.sees)


def evidence(fitted: QuestionModel, values: Values, distance: float = 0.0) -> tuple[Evidence, ...]:
    """What each reading contributes to the verdict by the probes, the one that moves most first."""
    found = []
    for reading in READINGS:
        if reading.sees == "unseen pairs":
            continue
        odds = fitted.raised(values, reading.name, distance)
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
    """The most probable phase or solution, if it is probable enough; both forms of Phase 2 are one.

    Phase 2 says with or without commutativity where one of them is that probable among the two.

    >>> phase = named(dict(zip(LABELS, (0.0, 0.28, 0.4, 0.32))), least=0.6)
    >>> phase.number, phase.commutative, phase.reason
    (2, None, 'Phase 2 with commutativity, 40 %; Phase 3, 32 %')
    """
    words = in_words(probabilities)
    phases: dict[Any, float] = {}
    for label, probability in probabilities.items():
        phase = label if label in SOLUTIONS else NUMBERS[label]
        phases[phase] = phases.get(phase, 0.0) + probability
    best = max(phases, key=phases.__getitem__)
    if phases[best] < least:
        what = SOLUTION_LABELS[best] if best in SOLUTIONS else f"Phase {best}"
        percent = math.floor(100 * phases[best])  # rounded, it could read as if it were enough
        return Phase.undecided("ambiguous", f"{what} at {percent} %, needs {100 * least:g} % ({words})")
    if best in SOLUTIONS:
        return Phase(None, None, words, solution=best)
    if best != 2 or "Phase 2" in probabilities:
        return Phase(best, None, words)
    without, commutes = (probabilities[label] for label in LABELS[1:3])
    share = commutes / (without + commutes)
    commutative = True if share >= least else False if share <= 1 - least else None
    return Phase(2, commutative, words)


def shape_of(config: object) -> dict[str, Any] | None:
    """What the calibration knows of a model's shape; None of a model that is no transformer."""
    if not isinstance(config, ModelConfig):
        return None
    return {name: getattr(config, name) for name in ("variant", "n_layers", "n_heads", "d_model")}
