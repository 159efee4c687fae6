"""A verdict read back from what `Verdict.to_dict` gave: everything but the model it was about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorlens.configuration import documented
from anchorlens.tasks.phases import Phase
from anchorlens.tasks.two_anchor.behaviour import Accuracy, Behaviour, PairAccuracy
from anchorlens.verdict.mechanism import Evidence, Mechanism

ACCURACIES = ("train", "train_fresh", "id", "ood", "symmetric", "commutativity")


@documented
@dataclass(frozen=True, eq=False)
class StoredVerdict:
    """Both verdicts on a model, without the model; fields are those of `Verdict`."""

    by_behaviour: Phase
    """The phase by definition."""
    mechanism: Mechanism
    """The phase that the inside speaks for."""
    behaviour: Behaviour
    """Everything that was measured on answers."""
    agreement: bool | None
    """Whether both name the same phase; None where one of them names none."""
    explanation: str
    """In a sentence: what the agreement, or the disagreement, means."""
    warnings: tuple[str, ...]
    """What the reader should know before believing it."""


def stored_verdict(values: Mapping[str, Any]) -> StoredVerdict:
    """Read a verdict back.

    Args:
        values: what `Verdict.to_dict` gave, also after a way through JSON.

    Returns:
        The same phases, numbers and words.

    Raises:
        KeyError: something is missing that `Verdict.to_dict` gives.
    """
    return StoredVerdict(
        by_behaviour=_phase(values),
        mechanism=_mechanism(values["mechanism"]),
        behaviour=_behaviour(values["behaviour"]),
        agreement=values["agreement"],
        explanation=values["explanation"],
        warnings=tuple(values["warnings"]),
    )


def _phase(values: Mapping[str, Any]) -> Phase:
    return Phase(values["phase"], values["commutative"], values["reason"])


def _mechanism(values: Mapping[str, Any]) -> Mechanism:
    evidence = [
        Evidence(**{**one, "ranges": {label: (ends[0], ends[1]) for label, ends in one["ranges"].items()}})
        for one in values["readings"]
    ]
    return Mechanism(_phase(values), values["probabilities"], tuple(evidence))


def _behaviour(values: Mapping[str, Any]) -> Behaviour:
    pairs = [
        PairAccuracy(tuple(row["pair"]), row["split"], Accuracy(**row["accuracy"])) for row in values["pairs"]
    ]
    deviations = {
        split: {int(deviation): share for deviation, share in shares.items()}
        for split, shares in values["deviations"].items()
    }
    accuracies = {name: values[name] and Accuracy(**values[name]) for name in ACCURACIES}
    read = {"phase": _phase(values["phase"]), "pairs": tuple(pairs), "deviations": deviations, **accuracies}
    return Behaviour(**{**values, **read})
