"""The verdicts from a model's activations and weights, by the probes and by decoding.

*By the probes* uses activations of trained pairs and weights only, and nothing of unseen pairs.
*By decoding* uses activations of unseen pairs, from which the answer can almost be read off, so it is not
independent evidence. Where the training data conflict with the composition, both name a solution. Both need
the accuracy on training sequences, to know whether the model fits them; neither uses answers on unseen pairs.
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
from anchorlens.verdict.question_model import SOLUTIONS, QuestionModel, Values
from anchorlens.verdict.readings import MEASURED, OF_ANY_TASK, READINGS, take_readings
from anchorlens.verdict.verdict import ByProbes, Evidence, Posterior, in_words

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

NUMBERS = {label: number for label, (number, _) in PHASES.items()} | {"Phase 2": 2}
"""Label of a phase -> its number; "Phase 2" is the label where commutativity is not asked."""
SAYS_NOTHING = 0.05
"""In nats; a reading that raises the odds of no label by more than this has no vote."""


class Inside(NamedTuple):
    """The verdicts by the probes and by decoding."""

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
    """The phase (in `conflict` the solution) that a model's readings support.

    Args:
        model: any HookedTransformer.
        task: what it was trained on. These verdicts work on two-anchor tasks only; for other tasks only
            readings of the weights are listed.
        shape: fields that replace those read from the model, above all `variant`, as far as known.
        train: accuracy on its training data; below .90 there is no phase. None if the training data are
            unknown; the phase then assumes that the model has fit them.
        void: why its answers rule every phase out; no reading is then taken.

    Returns:
        The most probable phase with the probability of each, or no phase with the reason: `void`, weights
        that are not finite, underfit, a task without anchors, or no phase that is probable enough.
        Readings are listed if they can be taken and `void` is None. The probabilities are less extreme for a
        model or task outside the calibration.
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
    """The fields of a model and its task for which the calibration has a range."""
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
    """Verdicts without probabilities; `readings` support no phase."""
    return Inside(ByProbes(phase, None, readings), Posterior(phase, None))


def _of_weights(model: HookedTransformer, task: Task) -> Iterator[Evidence]:
    """Readings of the weights of a model whose task has no calibration."""
    for reading in OF_ANY_TASK:
        try:
            result = probes.apply(MEASURED[reading.measurement].probe, model, task)
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # the probe does not apply to this architecture
        value = reading.of(getattr(result, reading.field, None), getattr(model, "cfg", None))
        if value is not None:
            about = (reading.name, reading.probe, reading.meaning)
            yield Evidence(*about, value, ranges={}, vote=None, weight=0.0, sees=reading.sees)


def evidence(fitted: QuestionModel, values: Values, distance: float = 0.0) -> tuple[Evidence, ...]:
    """The contribution of each reading to the verdict by the probes, the largest first."""
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
    """The most probable phase or solution, if its probability is at least `least`.

    The probabilities of both forms of Phase 2 are added. Phase 2 is named with or without commutativity if
    the share of that form among the two is at least `least`.

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
        percent = math.floor(100 * phases[best])  # rounding up could show a sufficient percentage
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
    """The fields of a model's shape in the calibration; None for a model that is no transformer."""
    if not isinstance(config, ModelConfig):
        return None
    return {name: getattr(config, name) for name in ("variant", "n_layers", "n_heads", "d_model")}
