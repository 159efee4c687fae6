"""What an agreement or disagreement of behaviour and probes means, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anchorlens.tasks.shared.phases import LEARNT, MEMORISATION, SOLUTION_LABELS, Phase
from anchorlens.verdict.inside import NUMBERS, by_phase
from anchorlens.verdict.verdict import ByProbes

_INSIDE = {
    1: "models that fail on held-out keys",
    2: "models that answer held-out keys and fail on unseen pairs",
    3: "models that compose the rules",
}
_OUTSIDE = {
    1: "It answers what it was trained on and fails on held-out keys",
    2: "It answers held-out keys and fails on unseen pairs",
    3: "It answers unseen pairs",
}
_DISAGREEMENT = {
    "memorised": "Behaviour is the definition; what it learnt does not survive the probe's further training",
    "learnt a rule": "What it learnt answers its training data, and too few of the held-out questions",
}
"""Label by `holdout` -> what it means if behaviour says the contrary."""
TIE = 2.0
"""The probes cannot tell a phase from the next if it is less than this many times as probable: of the runs of
the zoo with such a phase by the probes, six in ten have it by behaviour."""
_MOST_NAMED = 2


def explain(behaviour: Phase, by_probes: ByProbes) -> tuple[bool | None, str]:
    """Whether both name the same phase, or solution, and what that means.

    The text states only what was measured on this model: its phase by behaviour, the probabilities by the
    probes, and readings that a verdict prints (`ByProbes.strongest`).

    Returns:
        The agreement is None if one of them names none, or if the probes cannot tell the two likeliest phases
        apart; the text then says which and why.
    """
    agreement, text = _compared(behaviour, by_probes)
    if by_probes.outside and by_probes.phase.is_named:
        text = f"{text} The model or its task is outside the calibration, so the probes are less sure."
    return agreement, text


def outside_calibration(by_probes: ByProbes) -> Iterator[str]:
    """The warning that a model or its task is outside the calibration, if so."""
    if by_probes.outside:
        reasons = "; ".join(by_probes.outside)
        yield f"the model or its task is outside the calibration, so the probes are less sure: {reasons}"


def _compared(behaviour: Phase, by_probes: ByProbes) -> tuple[bool | None, str]:
    inside = by_probes.phase
    if inside.solution in MEMORISATION:
        return _compared_with_holdout(behaviour, inside)
    named = [phase.is_named for phase in (behaviour, inside)]
    if not named[0] and behaviour.reason == inside.reason:
        return None, f"No verdict: {behaviour.reason}."
    if not all(named):
        which = [
            f"{name} undecided ({phase.reason})"
            for name, phase, there in zip(
                ("behaviour is", "the probes are"), (behaviour, inside), named, strict=True
            )
            if not there
        ]
        text = f"{' and '.join(which)}."
        text = text[0].upper() + text[1:]
        if behaviour.solution in LEARNT:
            text = f"It {behaviour.gloss}. {text}"
        if behaviour.cause == "training data unknown" and inside.number is not None:
            text = (
                f"{text} If it has fit its training data, {_likeness(by_probes)}; only these data can tell."
            )
        return None, text
    if (behaviour.solution is None) != (inside.solution is None):
        return None, "Behaviour and probes cannot be compared: one names a phase and the other a solution."
    acts = f"It {behaviour.gloss}" if behaviour.number is None else _OUTSIDE[behaviour.number]
    likeness = _likeness(by_probes)
    if _tied(by_probes):
        return None, f"{acts}, and {likeness}.{_readings(by_probes)}"
    if _end(behaviour) != _end(inside):
        return False, f"{acts}, yet {likeness}.{_readings(by_probes)}"
    if {behaviour.commutative, inside.commutative} == {True, False}:
        orders, others = ("alike", "differently") if behaviour.commutative else ("differently", "alike")
        likeness += (
            f"; but it answers both orders of a pair {orders}, while models that look like it answer them "
            f"{others}"
        )
    return True, f"{acts}, and {likeness}."


def _compared_with_holdout(behaviour: Phase, inside: Phase) -> tuple[bool | None, str]:
    """The label by `holdout` beside the phase, or label, by behaviour.

    Phase 1 and `memorises` agree with `memorised`; every other phase and label with `learnt a rule`.
    """
    label, told = inside.label, f"it {inside.gloss} ({inside.reason.partition(':')[0]})"
    if not behaviour.is_named:
        return None, f"Behaviour is undecided ({behaviour.reason}). By the probes it {label}: {told}."
    acts = f"It {behaviour.gloss}"
    memorises = behaviour.number == 1 or behaviour.solution == LEARNT[0]
    if memorises == (label == MEMORISATION[0]):
        return True, f"{acts}, and {told}."
    return False, f"{acts}, yet {told}. {_DISAGREEMENT[label]}."


def _tied(by_probes: ByProbes) -> dict[Any, float]:
    """The two likeliest phases with their probabilities, if the probes cannot tell them apart; else none."""
    ends = by_phase(by_probes.probabilities or {})
    likeliest = sorted(ends, key=lambda end: -ends[end])[:2]
    is_tie = len(likeliest) == 2 and ends[likeliest[0]] < TIE * ends[likeliest[1]]
    return {end: ends[end] for end in likeliest} if is_tie else {}


def _likeness(by_probes: ByProbes) -> str:
    """Which models it looks like by its probabilities, or which phases these cannot tell apart."""
    if tied := _tied(by_probes):
        shares = (f"{_name(end)} ({100 * share:.0f} %)" for end, share in tied.items())
        return f"the probes cannot tell {' from '.join(shares)}"
    inside = by_probes.phase
    whose = f"a model that {inside.gloss}" if inside.number is None else _INSIDE[inside.number]
    return f"its inside looks like that of {whose}"


def _readings(by_probes: ByProbes) -> str:
    """The printed readings that speak most for and against the phase by the probes, as a sentence."""
    end = _end(by_probes.phase)
    supported: list[str] = []
    opposed: list[str] = []
    for one in by_probes.strongest:
        if one.value is None:
            continue
        odds = [nats for label, nats in one.odds.items() if NUMBERS.get(label, label) == end]
        told = f"{one.reading} {one.value:.2f}"
        if NUMBERS.get(one.vote or "", one.vote) == end:
            supported.append(told)
        elif odds and max(odds) < 0:
            opposed.append(told)
    sides = (("supported", supported), ("opposed", opposed))
    told = [f"{how} most by {' and '.join(names[:_MOST_NAMED])}" for how, names in sides if names]
    return f" {_name(end)} is {', and '.join(told)}." if told else ""


def _end(phase: Phase) -> int | str | None:
    """The number of a phase, or the solution."""
    return phase.solution if phase.number is None else phase.number


def _name(end: int | str | None) -> str:
    labels: Mapping[Any, str] = SOLUTION_LABELS
    return labels.get(end, f"Phase {end}")
