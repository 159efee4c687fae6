"""One sentence on what an agreement or disagreement of behaviour and probes means."""

from __future__ import annotations

from anchorlens.tasks.shared.phases import SOLUTION_GLOSS, Phase
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
_BECAUSE = {
    (1, 2): "it has the general solution in part; more steps or more data may help on held-out keys",
    (1, 3): "it has parts of the rules, but does not use them for held-out keys",
    (2, 1): "it may answer held-out keys by their similarity to trained ones, not by a general solution",
    (2, 3): "it computes the single-anchor results, but does not combine them for pairs it never saw",
    (3, 1): "it finds the right answers in another way than the calibrated models",
    (3, 2): "it finds the right answers in another way than the calibrated models, or only for most keys",
}
"""(phase by behaviour, phase by probes) -> a possible cause of the disagreement."""

_MOST_NAMED = 2


def explain(behaviour: Phase, by_probes: ByProbes) -> tuple[bool | None, str]:
    """Whether both name the same phase, or solution, and a sentence on what that means.

    Returns:
        The agreement is None if one of them names none; the sentence then says which and why.
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
        text = f"{' and '.join(which)}."
        text = text[0].upper() + text[1:]
        if behaviour.cause == "training data unknown" and inside.number is not None:
            likeness = f"its inside looks like that of {_INSIDE[inside.number]}"
            text = f"{text} If it has fit its training data, {likeness}; only these data can tell."
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
        return None, "Behaviour and probes cannot be compared: one names a phase and the other a solution."
    acts = f"It {SOLUTION_GLOSS[behaviour.solution]}"
    if behaviour.solution == inside.solution:
        return True, f"{acts}, and its inside looks like that of models that do."
    return False, (
        f"{acts}, yet its inside looks like that of a model that {SOLUTION_GLOSS[inside.solution]}: it finds "
        "its answers in another way than the calibrated models."
    )


def _readings(inside: Phase, by_probes: ByProbes) -> str:
    """The readings that most support the phase by the probes, in words."""
    named = [
        f"{one.reading} {one.value:.2f}"
        for one in by_probes.evidence
        if one.vote == inside.label and one.value is not None
    ][:_MOST_NAMED]
    return f" ({', '.join(named)})" if named else ""
