"""The explanation of an agreement or disagreement between the behavioural and probe verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anchorlens.tasks.shared.phases import LEARNT, MEMORISATION, SOLUTION_LABELS, Phase
from anchorlens.verdict.probe_verdict import NUMBERS, by_phase
from anchorlens.verdict.verdict import ProbeVerdict

_INSIDE = {
    1: "models that fail on held-out keys",
    2: "models that answer held-out keys but fail on unseen pairs",
    3: "models that compose the rules",
}
_OUTSIDE = {
    1: "The model answers its training data but fails on held-out keys",
    2: "The model answers held-out keys but fails on unseen pairs",
    3: "The model answers unseen pairs",
}
_DISAGREEMENT = {
    "memorised": "What the model learnt does not survive the further training of the probe; "
    "behaviour is the definition",
    "learnt a rule": "What the model learnt answers its training data, but too few held-out inputs",
}
"""The explanation for each label by `holdout` if the behavioural verdict contradicts the label."""
TIE = 2.0
"""The ratio of the two largest probabilities below which the probe verdict cannot distinguish two phases.
Below it, the more probable phase is the behavioural phase in nine of 17 runs (research/calibration)."""
OUTSIDE = "the model or its task is outside the calibration range, so the probe verdict is less reliable"
"""The warning for a model outside the calibration range."""
_MOST_NAMED = 2


def explain(behaviour: Phase, by_probes: ProbeVerdict) -> tuple[bool | None, str]:
    """Return whether the behavioural and probe verdicts agree, and an explanation.

    The explanation states only measurements of this model. The explanation contains the phase by behaviour,
    the probabilities by the probes, and the readings that a verdict prints (`ProbeVerdict.strongest`).

    Returns:
        The agreement and the explanation. The agreement is `None` if a verdict is undecided, or if the probe
        verdict cannot distinguish the two most probable phases. If the agreement is `None`, the explanation
        states the reason.
    """
    agreement, text = _compared(behaviour, by_probes)
    if by_probes.outside and by_probes.phase.is_named:
        text = f"{text} {OUTSIDE[0].upper()}{OUTSIDE[1:]}."
    return agreement, text


def outside_calibration(by_probes: ProbeVerdict) -> Iterator[str]:
    """Yield a warning if the model or its task is outside the calibration range."""
    if by_probes.outside:
        reasons = "; ".join(by_probes.outside)
        yield f"{OUTSIDE}: {reasons}"


def _compared(behaviour: Phase, by_probes: ProbeVerdict) -> tuple[bool | None, str]:
    inside = by_probes.phase
    if inside.solution in MEMORISATION:
        return _compared_with_holdout(behaviour, inside)
    if not behaviour.is_named and behaviour.reason == inside.reason:
        return None, f"No verdict: {behaviour.reason}."
    phases = {"behavioural": behaviour, "probe": inside}
    undecided = {name: phase.reason for name, phase in phases.items() if not phase.is_named}
    if undecided:
        text = " ".join(f"The {name} verdict is undecided ({why})." for name, why in undecided.items())
        if behaviour.solution in LEARNT:
            text = f"The model {behaviour.gloss}. {text}"
        if behaviour.cause == "training data unknown" and inside.number is not None:
            text = (
                f"{text} If the model has fit its training data, {_likeness(by_probes)}. Only the training "
                "data can show whether it has."
            )
        return None, text
    if (behaviour.solution is None) != (inside.solution is None):
        return None, "The verdicts cannot be compared, because one assigns a phase and the other a solution."
    acts = f"The model {behaviour.gloss}" if behaviour.number is None else _OUTSIDE[behaviour.number]
    likeness = _likeness(by_probes)
    if _tied(by_probes):
        return None, f"{acts}. From its activations and weights, {likeness}.{_readings(by_probes)}"
    if _end(behaviour) != _end(inside):
        return False, f"{acts}. However, {likeness}.{_readings(by_probes)}"
    text = f"{acts}, and {likeness}."
    if {behaviour.commutative, inside.commutative} == {True, False}:
        answer, others = ("the same answer", "different answers")[:: 1 if behaviour.commutative else -1]
        text += (
            f" The verdicts differ in commutativity: the model gives {answer} to both orders of a pair, and "
            f"the models that it resembles give {others}."
        )
    return True, text


def _compared_with_holdout(behaviour: Phase, inside: Phase) -> tuple[bool | None, str]:
    """Compare the label by `holdout` with the phase or label by behaviour.

    Phase 1 and the label `memorises` agree with `memorised`. Every other phase and label agrees with `learnt
    a rule`.
    """
    label, told = inside.label, f"it {inside.gloss} ({inside.reason.partition(':')[0]})"
    if not behaviour.is_named:
        undecided = f"The behavioural verdict is undecided ({behaviour.reason})."
        return None, f"{undecided} By the probes the model {label}: {told}."
    acts = f"The model {behaviour.gloss}"
    memorises = behaviour.number == 1 or behaviour.solution == LEARNT[0]
    if memorises == (label == MEMORISATION[0]):
        return True, f"{acts}, and {told}."
    return False, f"{acts}. However, {told}. {_DISAGREEMENT[label]}."


def _tied(by_probes: ProbeVerdict) -> dict[Any, float]:
    """Return the two most probable phases with their probabilities if the verdict cannot distinguish them.

    Otherwise the result is empty.
    """
    ends = by_phase(by_probes.probabilities or {})
    likeliest = sorted(ends, key=lambda end: -ends[end])[:2]
    is_tie = len(likeliest) == 2 and ends[likeliest[0]] < TIE * ends[likeliest[1]]
    return {end: ends[end] for end in likeliest} if is_tie else {}


def _likeness(by_probes: ProbeVerdict) -> str:
    """Describe the models that the probabilities indicate, or the phases that they cannot distinguish."""
    if tied := _tied(by_probes):
        shares = (f"{_name(end)} ({100 * share:.0f}%)" for end, share in tied.items())
        return f"the probe verdict cannot distinguish {' from '.join(shares)}"
    inside = by_probes.phase
    whose = f"a model that {inside.gloss}" if inside.number is None else _INSIDE[inside.number]
    return f"its activations and weights resemble those of {whose}"


def _readings(by_probes: ProbeVerdict) -> str:
    """Return a sentence with the printed readings that most support and oppose the phase by the probes."""
    end = _end(by_probes.phase)
    sides: dict[str, list[str]] = {"supported": [], "opposed": []}
    for one in by_probes.strongest:
        if one.value is None:
            continue
        odds = [nats for label, nats in one.odds.items() if NUMBERS.get(label, label) == end]
        told = f"{one.reading} {one.value:.2f}"
        if NUMBERS.get(one.vote or "", one.vote) == end:
            sides["supported"].append(told)
        elif odds and max(odds) < 0:
            sides["opposed"].append(told)
    told = [f"{how} most by {' and '.join(names[:_MOST_NAMED])}" for how, names in sides.items() if names]
    return f" {_name(end)} is {', and '.join(told)}." if told else ""


def _end(phase: Phase) -> int | str | None:
    """Return the number of a phase, or the solution."""
    return phase.solution if phase.number is None else phase.number


def _name(end: int | str | None) -> str:
    labels: Mapping[Any, str] = SOLUTION_LABELS
    return labels.get(end, f"Phase {end}")
