"""The probe and decoding verdicts, which use the activations and weights of a model.

The probe verdict uses only weights and activations of trained pairs. For tasks without anchors, which have no
calibrated phase, the probe verdict states whether the model memorised, by `holdout`. The decoding verdict
uses activations of unseen pairs. These activations almost contain the answer, so the decoding verdict is not
independent evidence. If the training data conflict with the composition, both verdicts assign a solution.
Both verdicts need the accuracy on training sequences, which shows whether the model has fit its training
data. Neither verdict uses answers to unseen pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.shared.result import ProbeResult
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import FIT_THRESHOLD, LABELS, PHASES, SOLUTION_LABELS, Phase
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.by_holdout import by_holdout
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.question_model import SOLUTIONS, QuestionModel, Values
from anchorlens.verdict.readings import CHEAP, COSTLY, READINGS, take_readings
from anchorlens.verdict.verdict import ByProbes, Evidence, Posterior, in_words

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

NUMBERS = {label: number for label, (number, _) in PHASES.items()} | {"Phase 2": 2}
"""The number of each phase by label. The label is "Phase 2" if commutativity is undefined."""
_NO_DECODING = "only two-anchor tasks have unseen pairs whose activations are compared with trained ones"
SAYS_NOTHING = 0.05
"""The smallest increase in the log-odds of a label, in nats, at which a reading has a vote."""


class Inside(NamedTuple):
    """The probe and decoding verdicts of a model."""

    by_probes: ByProbes
    by_decoding: Posterior
    measured: Mapping[Callable[..., Any], ProbeResult] = MappingProxyType({})
    """The results of the probes whose plots show the evidence of the probe verdict."""


def read_inside(
    model: HookedTransformer,
    task: Task,
    training_set: object = None,
    *,
    train: Accuracy | None = None,
    train_is_known: bool = True,
    void: Phase | None = None,
    thorough: bool | None = False,
) -> Inside:
    """Assign the phase, solution or label that the readings support.

    Args:
        model: a HookedTransformer.
        task: the task of the model. The phases are calibrated on two-anchor tasks. For other tasks, `holdout`
            measures whether the model memorised its training data or learnt a rule.
        training_set: the training data of the model. Default: training data drawn by the task.
        train: the accuracy on the training data. If the train accuracy is below 0.90, there is no phase.
        train_is_known: whether `train` was measured on the training data. If `train_is_known` is false, the
            phase assumes that the model has fit its training data.
        void: the reason why the answers exclude every phase. If there is a reason, the function takes no
            readings.
        thorough: whether to take the costly readings even if the other readings assign a phase. With `None`,
            no costly reading is taken.

    Returns:
        The most probable phase with the probability of each phase, or no phase with a reason. The reason is
        `void`, weights that are not finite, underfitting, or too small probabilities. A task without anchors
        has a label without probabilities (`by_holdout`). The verdict lists readings if the probes can take
        readings and `void` is `None`. The probabilities are less extreme for a model or task outside the
        calibration range.
    """
    underfit = None
    if train is not None and train_is_known and train.value < FIT_THRESHOLD:
        why = f"train accuracy {train} is below {FIT_THRESHOLD:.2f}; train longer"
        underfit = Phase.undecided("underfit", why)
    if not task.has_anchors:
        why_not = void if void is not None and void.cause == "underfit" else None
        by_probes, measured = by_holdout(model, task, training_set, why_not=why_not)
        if underfit is not None and by_probes.phase.cause == "no readings":
            by_probes = replace(by_probes, phase=underfit)
        by_decoding = Posterior(Phase.undecided("not defined", _NO_DECODING), None)
        return Inside(by_probes, by_decoding, {holdout: measured} if measured is not None else {})
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return _nothing(Phase.undecided("not finite", "the weights contain NaN or infinity"))
    if void is not None:
        return _nothing(void)
    anchors = cast("AnchorTask", task)
    try:
        of_regime, known = calibration().of(anchors), features(model, anchors)
        distance = of_regime.range.distance(known)
        both = (of_regime.by_probes, of_regime.by_decoding)
        known_data = training_set if train_is_known else None
        values = take_readings(model, anchors, names=CHEAP, training_set=known_data)
        for name in COSTLY if thorough or (thorough is not None and underfit is None) else ():
            open_ = both if thorough else [by for by in both if not assigns_phase(by, values, distance)]
            if _has_vote(name, open_):
                values |= take_readings(model, anchors, names=[name], training_set=known_data)
    except ValueError as error:
        return _nothing(Phase.undecided("no readings", str(error)))

    def posterior(by: QuestionModel) -> Posterior:
        probabilities = by.probabilities(values, distance)
        phase = likeliest_phase(probabilities, by.least_probability)
        return Posterior(phase if underfit is None else underfit, probabilities)

    probes_alone = posterior(of_regime.by_probes)
    shown = {name: value for name, value in values.items() if name in of_regime.by_probes.ranges}
    return Inside(
        ByProbes(
            phase=probes_alone.phase,
            probabilities=probes_alone.probabilities,
            evidence=evidence(of_regime.by_probes, shown, distance),
            outside=tuple(of_regime.range.outside(known)),
            not_measured=tuple(
                dict.fromkeys(
                    one.probe
                    for one in READINGS
                    if one.name not in values and _has_vote(one.measurement, both)
                )
            ),
        ),
        posterior(of_regime.by_decoding),
    )


def features(model: HookedTransformer, task: AnchorTask) -> dict[str, Any]:
    """Return the fields of a model and its task that the calibration range covers.

    The value of an unknown field is `None`.
    """
    from anchorlens.models.variants import BLOCKS

    cfg, blocks = model.cfg, [*getattr(model, "blocks", ())]
    mlp = "gated" if getattr(cfg, "gated_mlp", False) else "dense"
    mlp = "none" if getattr(cfg, "attn_only", False) else mlp
    own = [name for name, block in BLOCKS.items() if any(isinstance(one, block) for one in blocks)]
    return {
        "variant": own[0] if own else "gpt2",
        "n_layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "d_model": cfg.d_model,
        "n_anchors": len(task.anchors),
        "n_keys": len(task.keys),
        "seq_len": task.seq_len,
        "chain_length": task.chain_length,
        "normalization": (getattr(cfg, "normalization_type", None) or "none").removesuffix("Pre"),
        "positions": getattr(cfg, "positional_embedding_type", None),
        "attention": getattr(cfg, "attention_dir", None),
        "activation": (getattr(cfg, "act_fn", None) or "").partition("_")[0] or None,  # gelu_new is a gelu
        "blocks": "parallel" if getattr(cfg, "parallel_attn_mlp", False) else "serial",
        "mlp": mlp if getattr(cfg, "num_experts", None) is None else "mixture of experts",
        "exceptions": "some" if task.n_exceptions else "none",
    }


def _nothing(phase: Phase) -> Inside:
    """Return verdicts without probabilities."""
    return Inside(ByProbes(phase, None), Posterior(phase, None))


def evidence(fitted: QuestionModel, values: Values, distance: float = 0.0) -> tuple[Evidence, ...]:
    """Return the contribution of each reading to the probe verdict, the largest contribution first."""
    found = []
    for reading in READINGS:
        if reading.sees == "unseen pairs" or reading.name not in values:
            continue
        odds = fitted.change_of_log_odds(values, reading.name, distance)
        label, weight = max(odds.items(), key=lambda item: item[1])
        speaks = weight > SAYS_NOTHING
        value = values[reading.name]
        votes = {which: answer.votes.get(reading.name) for which, answer in fitted.questions.items()}
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
                alone={which: vote.log_odds(value) for which, vote in votes.items() if vote is not None},
                sees=reading.sees,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.weight))


def _has_vote(measurement: str, verdicts: Sequence[QuestionModel]) -> bool:
    """Return whether a reading of the measurement has a vote with a weight above 0 in a verdict."""
    names = {one.name for one in READINGS if one.measurement == measurement}
    return any(not names.isdisjoint(by.voters) for by in verdicts)


def assigns_phase(fitted: QuestionModel, values: Values, distance: float = 0.0) -> bool:
    """Return whether a phase or solution has the least probability by some readings.

    Args:
        fitted: the model of the verdict.
        values: the readings and their values. Readings may be missing.
        distance: the distance from the calibration models, at least 0.
    """
    return likeliest_phase(fitted.probabilities(values, distance), fitted.least_probability).is_named


def by_phase(probabilities: Mapping[str, float]) -> dict[Any, float]:
    """Return the probability of each phase or solution, with the sum of both forms of Phase 2.

    >>> by_phase(dict(zip(LABELS, (0.0, 0.25, 0.5, 0.25))))
    {1: 0.0, 2: 0.75, 3: 0.25}
    """
    phases: dict[Any, float] = {}
    for label, probability in probabilities.items():
        phase = NUMBERS.get(label, label)
        phases[phase] = phases.get(phase, 0.0) + probability
    return phases


def likeliest_phase(probabilities: Mapping[str, float], least: float) -> Phase:
    """Return the most probable phase or solution if its probability is at least `least`.

    The function adds the probabilities of both forms of Phase 2. The result states the commutativity of Phase
    2 if the fraction of one form is at least `least`.

    >>> phase = likeliest_phase(dict(zip(LABELS, (0.0, 0.28, 0.4, 0.32))), least=0.6)
    >>> phase.number, phase.commutative, phase.reason
    (2, None, 'Phase 2 with commutativity, 40%; Phase 3, 32%')
    """
    words, phases = in_words(probabilities), by_phase(probabilities)
    best = max(phases, key=phases.__getitem__)
    if phases[best] < least:
        what = SOLUTION_LABELS[best] if best in SOLUTIONS else f"Phase {best}"
        percent = math.floor(100 * phases[best])  # rounding up could show a sufficient percentage
        return Phase.undecided("ambiguous", f"{what} has {percent}%, needs {100 * least:g}% ({words})")
    if best in SOLUTIONS:
        return Phase(None, None, words, solution=best)
    if best != 2 or "Phase 2" in probabilities:
        return Phase(best, None, words)
    without, commutes = (probabilities[label] for label in LABELS[1:3])
    share = commutes / (without + commutes)
    commutative = True if share >= least else False if share <= 1 - least else None
    return Phase(2, commutative, words)
