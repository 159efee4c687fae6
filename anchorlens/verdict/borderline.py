"""The behaviour verdict: the phase by definition, unless a number is too near to a threshold to tell."""

from __future__ import annotations

from anchorlens.tasks.phases import COMMUTATIVITY_THRESHOLD, FIT_THRESHOLD, ID_THRESHOLD, OOD_THRESHOLD, Phase
from anchorlens.tasks.two_anchor.behaviour import Accuracy, Behaviour

STANDARD_ERRORS = 2
"""A number within so many standard errors of a threshold is borderline."""
_ROUNDING = 1e-9


def phase_by_behaviour(behaviour: Behaviour) -> Phase:
    """The phase by definition, or `undecided: borderline`.

    Args:
        behaviour: what `evaluate` measured.

    Returns:
        `behaviour.phase` where every number that decides it is more than two standard errors from its
        threshold. Where train, ID or OOD accuracy is not, no phase; where only commutativity is not,
        Phase 2 with `commutative` None. The standard errors are those of the noise draws.

    Source: the phases of arXiv 2405.05409 and 2501.08537.
    """
    phase = behaviour.phase
    if not behaviour.finite or (phase.phase is None and phase.reason.startswith("not finite")):
        return phase
    deciding = [("train", behaviour.train, FIT_THRESHOLD)]
    if behaviour.train.value >= FIT_THRESHOLD and behaviour.ood is not None:
        deciding += [("ID", behaviour.id, ID_THRESHOLD), ("OOD", behaviour.ood, OOD_THRESHOLD)]
    near = [_near(name, value, limit) for name, value, limit in deciding if _is_near(value, limit)]
    if near:
        return Phase(None, None, f"borderline: {'; '.join(near)}; by definition {phase.label}")
    commutativity = behaviour.commutativity
    if phase.phase == 2 and commutativity and _is_near(commutativity, COMMUTATIVITY_THRESHOLD):
        text = _near("commutativity", commutativity, COMMUTATIVITY_THRESHOLD)
        return Phase(2, None, f"{phase.reason}; borderline: {text}")
    return phase


def _is_near(accuracy: Accuracy, threshold: float) -> bool:
    return abs(accuracy.value - threshold) <= STANDARD_ERRORS * accuracy.standard_error + _ROUNDING


def _near(name: str, accuracy: Accuracy, threshold: float) -> str:
    return f"{name} {accuracy} is within {STANDARD_ERRORS} standard errors of {threshold:.2f}"
