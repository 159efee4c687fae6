"""What it means that behaviour and the probes agree, or do not, in a sentence."""

from __future__ import annotations

from anchorlens.tasks.shared.phases import SOLUTION_GLOSS, Phase
from anchorlens.verdict.verdict import ByProbes

_INSIDE = {
    1: "models that do not reach held-out keys",
    2: "models that generalise to held-out keys alone",
    3: "models that compose the rules",
}
_OUTSIDE = {
    1: "It answers what it was trained on and does not reach held-out keys",
    2: "It answers held-out keys and fails on unseen pairs",
    3: "It answers unseen pairs",
}
_BECAUSE = {
    (1, 2): "the general solution is there in part: more steps or more data may bring held-out keys right",
    (1, 3): "parts of the rules are there, but its answers do not rest on them for held-out keys",
    (2, 1): "held-out keys may be right by likeness to trained ones rather than by a general solution",
    (2, 3): "the single-anchor results are there, but are not put together for pairs it never saw",
    (3, 1): "it reaches the right answers by a way that the calibrated models do not take",
    (3, 2): "it reaches the right answers by a way that the calibrated models do not take, or composes "
    "for most keys only",
}
"""(behaviour, probes) -> what may be behind it."""

_MOST_NAMED = 2


def explain(behaviour: Phase, by_probes: ByProbes) -> tuple[bool | None, str]:
    """Whether both name the same phase, or solution, and what that means.

    Returns:
        None where one of them names none; the sentence then says which and why.
    """
    inside = by_probes.phase
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
        text = f"No comparison: {' and '.join(which)}."
        if behaviour.cause == "training data unknown" and inside.number is not None:
            likeness = f"Its inside looks like that of {_INSIDE[inside.number]}"
            text = f"{text} {likeness}, if it has fit its training data; only they can tell."
        return None, text
    if behaviour.solution is not None or inside.solution is not None:
        return _of_solutions(behaviour, inside)
    assert behaviour.number is not None and inside.number is not None
    looks = f"its inside looks like that of {_INSIDE[inside.number]}"
    if behaviour.number != inside.number:
        because = _BECAUSE[behaviour.number, inside.number]
        return False, f"{_OUTSIDE[behaviour.number]}, yet {looks}{_readings(inside, by_probes)}: {because}."
    if (
        None not in (behaviour.commutative, inside.commutative)
        and behaviour.commutative != inside.commutative
    ):
        orders = "alike" if behaviour.commutative else "differently"
        likeness = "alike" if inside.commutative else "differently"
        return True, (
            f"{_OUTSIDE[behaviour.number]}, and {looks}; but it answers both orders of a pair {orders}, "
            f"while models that look like it answer them {likeness}."
        )
    return True, f"{_OUTSIDE[behaviour.number]}, and {looks}."


def _of_solutions(behaviour: Phase, inside: Phase) -> tuple[bool | None, str]:
    if behaviour.solution is None or inside.solution is None:
        return None, "No comparison: one names a phase and the other a solution."
    acts = f"It {SOLUTION_GLOSS[behaviour.solution]}"
    if behaviour.solution == inside.solution:
        return True, f"{acts}, and its inside looks like that of models that do."
    return False, (
        f"{acts}, yet its inside looks like that of a model that {SOLUTION_GLOSS[inside.solution]}: it comes "
        "to its answers by a way that the calibrated models do not take."
    )


def _readings(inside: Phase, by_probes: ByProbes) -> str:
    """The readings that say most for the phase of the probes."""
    named = [
        f"{one.reading} {one.value:.2f}"
        for one in by_probes.evidence
        if one.vote == inside.label and one.value is not None
    ][:_MOST_NAMED]
    return f" ({', '.join(named)})" if named else ""
