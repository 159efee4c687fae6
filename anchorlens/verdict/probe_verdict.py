"""The probe verdict, which uses the activations and weights of a model.

The probe verdict uses only weights and activations of trained pairs. If the training data conflict with the
composition, the verdict assigns a solution. The verdict needs the accuracy on training sequences, which shows
whether the model has fit its training data. The verdict does not use answers to unseen pairs.

For tasks without anchors, which have no calibrated phase, the probe verdict is `memorised` or `learnt a rule`
by `holdout`. `holdout` trains copies of the model further without a random tenth of the training data. It
uses only the training data and the weights, and no held-out data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import torch

from anchorlens import probes
from anchorlens.files.any_module import AnyModule
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.probes.any_model.holdout import MEMORISED, UPDATES, Holdout, holdout
from anchorlens.probes.shared.look_up import ABOVE_CHANCE
from anchorlens.probes.two_anchor.survival import standard_error
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import (
    FIT_THRESHOLD,
    LABELS,
    MEMORISATION,
    ORDER_ALONE,
    PHASES,
    SOLUTION_LABELS,
    Phase,
)
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.calibration import SOLUTIONS, LogisticModel, Values, calibration
from anchorlens.verdict.readings import (
    CHEAP,
    COSTLY,
    MEASURED,
    OF_ANY_TASK,
    READINGS,
    SURVIVAL,
    mean_of,
    measurements,
    take_readings,
)
from anchorlens.verdict.verdict import Evidence, ProbeVerdict, in_words

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

NUMBERS = {label: number for label, (number, _) in PHASES.items()} | {"Phase 2": 2}
"""The number of each phase by label. The label is "Phase 2" if commutativity is undefined."""
SAYS_NOTHING = 0.05
"""The smallest increase in the log-odds of a label, in nats, at which a reading has a vote."""
_MEANINGS = {
    "holdout_ratio": f"after {UPDATES[-1]} updates without a tenth of the training data: accuracy on that "
    "tenth, over the accuracy on the other data, both above chance",
    "related_ratio": "the same ratio with related sequences held out together, above the look-up",
    "ratio_at_80": "the first ratio after 80 updates",
    "ratio_at_40": "the same ratio after 40 updates",
    "ratio_at_20": "the same ratio after 20 updates",
    "others": f"accuracy on the other training data after {UPDATES[-1]} updates",
    "chance": "accuracy of the most frequent answer after the last token",
    "look_up": "accuracy of a look-up in the other training sequences, on held-out sequences",
    "n_groups": "number of groups of related sequences",
    "dose": "mean weight decay per update",
    "n_left_out": "number of training sequences in that tenth",
}
"""The meaning of each field of `Holdout`."""


def probe_verdict(
    model: HookedTransformer,
    task: Task,
    training_set: object = None,
    *,
    train: Accuracy | None = None,
    train_is_known: bool = True,
    void: Phase | None = None,
    quick: bool = False,
    seed: int = 0,
) -> ProbeVerdict:
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
        quick: whether to take no costly reading. Otherwise, costly readings are taken, the least costly
            first, as long as they could change the label.
        seed: the seed of the costly probes. `survival` has the seeds 2 `seed` and 2 `seed` + 1.

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
        by_probes = by_holdout(model, task, training_set, why_not=why_not, seed=seed)
        if underfit is not None and by_probes.phase.cause == "no readings":
            by_probes = replace(by_probes, phase=underfit)
        return by_probes
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return ProbeVerdict(Phase.undecided("not finite", "the weights contain NaN or infinity"), None)
    if void is not None:
        return ProbeVerdict(void, None)
    anchors = cast("AnchorTask", task)
    try:
        of_regime = calibration().of(anchors)
        known = features(model, anchors)
        fitted, distance = of_regime.by_probes, of_regime.range.distance(known)
        known_data = training_set if train_is_known else None
        values, survived = take_readings(model, anchors, names=CHEAP, training_set=known_data), []
        costly = [name for name in COSTLY if _has_weight(name, fitted)]
        for place, name in enumerate(costly if underfit is None and not quick else ()):
            if is_settled(fitted, values, costly[place:], distance):
                break
            if name == SURVIVAL.measurement:
                survived = measurements(model, anchors, names=[name], seed=2 * seed)[name]
                if not _is_steady(fitted, values, distance, survived, n_errors=2):
                    survived += measurements(model, anchors, names=[name], seed=2 * seed + 1)[name]
                survived = [one for one in survived if mean_of([one], SURVIVAL.field) is not None]
                values[SURVIVAL.name] = mean_of(survived, SURVIVAL.field)
            else:
                values |= take_readings(model, anchors, names=[name], training_set=known_data, seed=seed)
    except ValueError as error:
        return ProbeVerdict(Phase.undecided("no readings", str(error)), None)
    probabilities = fitted.probabilities(values, distance)
    shown = {name: value for name, value in values.items() if name in fitted.ranges}
    unmeasured = [one for one in READINGS if one.name not in values]
    missing = (one.probe for one in unmeasured if _has_weight(one.measurement, fitted))
    phase = underfit or likeliest_phase(probabilities, fitted.least_probability)
    readings = evidence(fitted, shown, distance)
    if not _is_steady(fitted, values, distance, survived, n_errors=1):
        survival = f"survival, {values[SURVIVAL.name]:.2f} ± {standard_error(survived):.2f}"
        why = f"the error of {survival}, changes the label ({in_words(probabilities)})"
        phase = Phase.undecided("ambiguous", why)
    if len(survived) > 1:
        meaning = f"{SURVIVAL.meaning}, the mean of two measurements, ± {standard_error(survived):.2f}"
        readings = tuple(
            replace(one, meaning=meaning) if one.reading == SURVIVAL.name else one for one in readings
        )
    outside = tuple(of_regime.range.outside(known))
    return ProbeVerdict(phase, probabilities, readings, outside, tuple(dict.fromkeys(missing)))


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


def evidence(fitted: LogisticModel, values: Values, distance: float = 0.0) -> tuple[Evidence, ...]:
    """Return the contribution of each reading to the probe verdict, the largest contribution first.

    Readings of unseen pairs have no vote.
    """
    found = []
    for reading in READINGS:
        if reading.name not in values:
            continue
        odds = fitted.change_of_log_odds(values, reading.name, distance)
        label, weight = max(odds.items(), key=lambda item: item[1])
        value, ranges = values[reading.name], fitted.ranges.get(reading.name, {})
        about = (reading.name, reading.probe, reading.meaning, value, ranges)
        voted = (label, weight, odds) if weight > SAYS_NOTHING else (None, 0.0, {})
        votes = {which: answer.votes.get(reading.name) for which, answer in fitted.questions.items()}
        alone = {which: vote.log_odds(value) for which, vote in votes.items() if vote is not None}
        found.append(Evidence(*about, *voted, alone=alone, sees=reading.sees))
    return tuple(sorted(found, key=lambda one: -one.weight))


def _has_weight(measurement: str, fitted: LogisticModel) -> bool:
    """Return whether a reading of the measurement has a vote with a weight above 0."""
    names = {one.name for one in READINGS if one.measurement == measurement}
    return not names.isdisjoint(fitted.voters)


def is_settled(
    fitted: LogisticModel, values: Values, not_taken: Sequence[str], distance: float = 0.0
) -> bool:
    """Return whether the same phase or solution is assigned for any values of some readings.

    The log-odds for which a label has at least a given probability are a convex set, because its probability
    is a product of logistic functions. So the ends of the ranges of the votes are sufficient. If no label is
    assigned, the result is false.

    Args:
        fitted: the model of the verdict.
        values: the readings and their values. Readings may be missing.
        not_taken: the names of the measurements whose readings may have any value.
        distance: the distance from the calibration models, at least 0.
    """
    free = [one.name for one in READINGS if one.measurement in not_taken and one.name in fitted.voters]
    votes = {
        name: [fit.votes[name] for fit in fitted.questions.values() if name in fit.votes] for name in free
    }
    ends = product(*([None, *{end for vote in votes[one] for end in (vote.low, vote.high)}] for one in free))
    phases = [_phase(fitted, {**values, **dict(zip(free, end, strict=True))}, distance) for end in ends]
    return phases[0].is_named and len({phase.label for phase in phases}) == 1


def _is_steady(
    fitted: LogisticModel, values: Values, distance: float, survived: Sequence[Any], n_errors: float
) -> bool:
    """Return whether the label is the same at both ends of an interval around the mean of `survival`."""
    value = mean_of(survived, SURVIVAL.field)
    if value is None:
        return True
    width = n_errors * standard_error(survived)
    around = ({**values, SURVIVAL.name: value + change} for change in (-width, 0, width))
    return len({_phase(fitted, one, distance).label for one in around}) == 1


def _phase(fitted: LogisticModel, values: Values, distance: float) -> Phase:
    return likeliest_phase(fitted.probabilities(values, distance), fitted.least_probability)


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
    (2, None, 'Phase 2, 68% (with commutativity 40%, without commutativity 28%); Phase 3, 32%')
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


def by_holdout(
    model: HookedTransformer,
    task: Task,
    training_set: object = None,
    *,
    why_not: Phase | None = None,
    seed: int = 0,
) -> ProbeVerdict:
    """Measure whether a model memorised its training data or learnt a rule.

    Args:
        model: a HookedTransformer, or a native TransformerBridge.
        task: a task without anchors.
        training_set: the training data of the model. Default: training data drawn by the task.
        why_not: the reason why the probe is not applied, or `None` to apply the probe.
        seed: the seed of `holdout`.

    Returns:
        The verdict, with the label `memorised` or `learnt a rule`. The verdict has a reason instead of a
        label if the holdout ratio lies between the bounds of both labels, or if the probe refuses its input.
        The verdict also lists readings of the weights. These readings are not evidence for a label.
    """
    weights = tuple(_of_weights(model, task))
    if why_not is not None:
        return ProbeVerdict(why_not, None, weights)
    try:
        found = probes.apply(
            holdout, LoadedModel(task=task, in_memory=model), training_set=training_set, seed=seed
        )
    except ValueError as error:
        return ProbeVerdict(Phase.undecided("no readings", str(error)), None, weights)
    assert isinstance(found, Holdout)
    phase = phase_by_holdout(found)
    return ProbeVerdict(phase, None, (*_of_holdout(found, phase), *weights), measured={holdout: found})


def phase_by_holdout(found: Holdout) -> Phase:
    """Return the label that a holdout ratio determines.

    The label is `memorised` up to a ratio of 0.75, and `learnt a rule` from a ratio of 0.84 on. Between these
    bounds, the result is undecided. For `learnt a rule`, `related_ratio` must also be at least 0.84, and the
    accuracy of the copies on held-out sequences must be more than 0.1 above the accuracy of a look-up.
    Otherwise, the other sequences may contain what a held-out sequence teaches, and the result is undecided.

    These bounds were set on transformers. For a torch module of another class, `learnt a rule` starts at a
    ratio of 0.93 (`learnt_from`), because MLPs that memorised random labels reached 0.88.
    """
    ratio, numbers = found.holdout_ratio, f"ratio {found.headline()}"
    if ratio is None:
        why = "the copies forgot the other training data too, or the last token alone almost gives the answer"
        return Phase.undecided("no readings", f"{why}, so there is no ratio")
    learnt = found.learnt_from
    if ratio <= MEMORISED:
        return Phase(None, None, numbers, solution=MEMORISATION[0])
    if (ratio >= learnt or found.in_any_order) and (why := _without_a_rule(found, learnt)):
        return Phase.undecided("answered by look-up", f"{why}; {numbers}")
    if ratio >= learnt:
        return Phase(None, None, numbers, solution=MEMORISATION[1])
    why = (
        f"models that memorised have at most {MEMORISED:.2f}, those that learnt a rule at least {learnt:.2f}"
    )
    return Phase.undecided("between", f"{why}; {numbers}")


def _without_a_rule(found: Holdout, learnt: float) -> str | None:
    """Return how the other sequences may teach a held-out sequence without a rule; None if they do not."""
    if found.look_up is None or found.related_left_out is None:
        return None
    ratio, is_looked_up = found.related_ratio, found.look_up > found.related_left_out - ABOVE_CHANCE
    if ratio is not None and ratio >= learnt and not is_looked_up:
        return None
    if is_looked_up and (ratio is None or ratio >= learnt):
        return f"a look-up in the other rows answers these rows too (accuracy {found.look_up:.2f})"
    related = "no ratio" if ratio is None else f"ratio {ratio:.2f}"
    if found.in_any_order:
        return f"{ORDER_ALONE} ({related} with all orders of a row held out together)"
    return f"related rows may teach a row ({related} above a look-up, with related rows held out together)"


def _of_holdout(found: Holdout, phase: Phase) -> Iterator[Evidence]:
    """Yield the readings of `holdout`.

    Only the two ratios after all updates determine the label.
    """
    memorised, learnt = MEMORISATION
    bounds: dict[str, tuple[float, float]] = {memorised: (0.0, MEMORISED), learnt: (found.learnt_from, 1.0)}
    for name, meaning in _MEANINGS.items():
        value, decides = getattr(found, name), name in ("holdout_ratio", "related_ratio")
        about = (f"holdout.{name}", "holdout", meaning, None if value is None else float(value))
        ranges, vote = (bounds, phase.solution) if decides else ({}, None)
        yield Evidence(*about, ranges=ranges, vote=vote, weight=0.0, sees="training data")


def _of_weights(model: HookedTransformer, task: Task) -> Iterator[Evidence]:
    """Yield the readings of the weights, which are not evidence of memorisation."""
    for reading in () if isinstance(model, AnyModule) else OF_ANY_TASK:
        try:
            result = probes.apply(MEASURED[reading.measurement].probe, model, task)
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # the probe does not apply to this architecture
        value = reading.of(getattr(result, reading.field, None), getattr(model, "cfg", None))
        if value is not None:
            about = (reading.name, reading.probe, reading.meaning)
            yield Evidence(*about, value, ranges={}, vote=None, weight=0.0, sees=reading.sees)
