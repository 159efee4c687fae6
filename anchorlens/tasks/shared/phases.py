"""The definition of the phases: from four accuracies to a phase, or to the reason why there is none.

A task that leaves nothing out but a random share has no OOD accuracy, and labels of its own.

Sources: the phases of arXiv 2405.05409 and 2501.08537, with thresholds in numbers; the labels without OOD are
ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from anchorlens.configuration import documented
from anchorlens.records import Record, Text
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.metric import Metric, has_labels

FIT_THRESHOLD = 0.90
"""Train accuracy below this: underfit, no phase."""
ID_THRESHOLD = 0.90
"""ID accuracy below this: Phase 1, or without OOD `memorises`. For pairs whose mirror is trained the same."""
OOD_THRESHOLD = 0.50
"""OOD accuracy above this: Phase 3."""
COMMUTATIVITY_THRESHOLD = 0.70
"""Commutativity from this on: Phase 2 is `with commutativity`."""
CLEAR = 2
"""An accuracy is clearly above or below its threshold if it is more standard errors than this away."""
_THRESHOLDS = {
    "train": FIT_THRESHOLD,
    "ID": ID_THRESHOLD,
    "OOD": OOD_THRESHOLD,
    "commutativity": COMMUTATIVITY_THRESHOLD,
}
_TITLES = {"train": "train", "id": "ID"}
_ROUNDING = 1e-9
FEWEST_TRAINED = 20
"""Fewer distinct training sequences are too few for a phase: 17 right answers of 17 are not yet more than two
standard errors above .90."""

TRAINING_SET = "training set"
"""What train accuracy is measured on where the training data are known."""

Learnt = Literal["memorises", "knows that the order does not matter", "generalises"]
"""What a model has learnt of a task without OOD; also its label."""
Memorisation = Literal["memorised", "learnt a rule"]
"""How a model answers its training data, by the probes, where no phase is calibrated; also its label."""
Solution = Literal["inferential", "symmetric", "mixed by position", "other"] | Learnt | Memorisation
"""How a model answers unseen pairs whose mirrored pair is trained on a target other than the composition;
what it has learnt of a task without OOD; or how it answers its training data."""

Cause = Literal[
    "not finite",
    "targets of another task",
    "held-out questions were trained",
    "too few training sequences",
    "underfit",
    "training data unknown",
    "no unseen pair",
    "answered by symmetry",
    "inconsistent",
    "borderline",
    "not defined",
    "at chance",
    "no readings",
    "between",
    "ambiguous",
]
"""Why no phase is named: the first eleven by behaviour; by internals the first three, `underfit`,
`answered by symmetry` (by decoding) and the last four. `between`: the ratio of `holdout` is neither that of
models that memorised nor that of models that learnt a rule."""

PHASES: Mapping[str, tuple[Literal[1, 2, 3], bool | None]] = {
    "Phase 1": (1, None),
    "Phase 2 without commutativity": (2, False),
    "Phase 2 with commutativity": (2, True),
    "Phase 3": (3, None),
}
"""Label -> phase, and in Phase 2 whether it is commutative."""
LABELS = tuple(PHASES)
"""The phases, with Phase 2 in its two forms."""

SHORT: Mapping[str, str] = dict(zip(LABELS, ("1", "2 (not comm.)", "2 (comm.)", "3"), strict=True))
"""Label of a phase -> its short form after the word Phase, where space is short."""

COLOURS: Mapping[str, str] = dict(zip(LABELS, ("#C8553D", "#A87B00", "#3A7BC8", "#1E8A6A"), strict=True))
"""Label of a phase -> its colour, with a contrast of at least 3:1 to white and to the dark page; always shown
with the label."""

GLOSS: Mapping[int | None, str] = {
    1: "fits its training data, fails on held-out data",
    2: "generalises in distribution, not beyond",
    3: "composes the rules",
    None: "no phase",
}
"""Phase -> what a model in it does."""

LEARNT: tuple[Learnt, ...] = get_args(Learnt)
"""The labels of a task without OOD, in order."""
MEMORISATION: tuple[Memorisation, ...] = get_args(Memorisation)
"""The labels by the probes where no phase is calibrated."""
SOLUTION_LABELS: Mapping[Solution, str] = {
    "inferential": "inferential solution",
    "symmetric": "symmetric solution",
    "mixed by position": "solutions mixed by position",
    "other": "neither solution",
    **{label: label for label in (*LEARNT, *MEMORISATION)},
}
"""Solution -> its label."""
SOLUTION_COLOURS: Mapping[str, str] = dict(
    zip(
        SOLUTION_LABELS.values(),
        (COLOURS[LABELS[3]], COLOURS[LABELS[2]], COLOURS[LABELS[1]], "#7A7F87")
        + (COLOURS[LABELS[0]], COLOURS[LABELS[2]], COLOURS[LABELS[3]])
        + (COLOURS[LABELS[0]], COLOURS[LABELS[3]]),
        strict=True,
    )
)
"""Label of a solution -> its colour, with a contrast of at least 3:1 to white and to the dark page."""
SOLUTION_GLOSS: Mapping[Solution, str] = {
    "inferential": "composes the rules for unseen pairs",
    "symmetric": "gives an unseen pair the trained answer of the reversed pair",
    "mixed by position": "composes at some positions of the key and answers by symmetry at others",
    "other": "does not answer unseen pairs consistently by either solution",
    "memorises": "answers its training data but fails on held-out pairs",
    "knows that the order does not matter": "answers a held-out pair if the reversed pair is trained, but "
    "fails on the others",
    "generalises": "answers held-out pairs",
    "memorised": "forgets training data that are held out of further training",
    "learnt a rule": "still answers training data that are held out of further training",
}
"""Solution -> what a model with it does."""


@documented
@dataclass(frozen=True)
class Phase(Record):
    """A phase; a solution, if the training data conflict with the composition; or the cause of neither.

    For a task without OOD, the solution is what the model has learnt; by the probes, where no phase is
    calibrated, whether it memorised its training data or learnt a rule.

    Source: the phases of arXiv 2501.08537, the solutions of arXiv 2405.05409.
    """

    derived: ClassVar[tuple[str, ...]] = ("label",)
    number: Literal[1, 2, 3] | None
    """1 memorises, 2 generalises in distribution, 3 composes rules; None: undecided."""
    commutative: bool | None
    """In Phase 2, whether commutativity is >= .70; None elsewhere or where that is not known."""
    reason: Text
    """The numbers that decided, in words for people."""
    cause: Cause | None = None
    """Why there is no phase; None if there is one."""
    solution: Solution | None = None
    """How the model answers unseen pairs, if its training data conflict with the composition; what it has
    learnt, if the task has no OOD; by the probes, where no phase is calibrated, whether it memorised."""

    @classmethod
    def undecided(cls, cause: Cause, why: str) -> Phase:
        """No phase, and why: the cause for programs, and words for people."""
        return cls(None, None, f"{cause}: {why}", cause)

    @property
    def is_named(self) -> bool:
        """Whether there is a phase, or a solution."""
        return self.number is not None or self.solution is not None

    @property
    def label(self) -> str:
        """Short name: `Phase 2 with commutativity`, `inferential solution`, `undecided: underfit`, ..."""
        if self.solution is not None:
            return SOLUTION_LABELS[self.solution]
        if self.number is None:
            return f"undecided: {self.cause}" if self.cause else "undecided"
        suffix = {True: " with commutativity", False: " without commutativity", None: ""}
        return f"Phase {self.number}{suffix[self.commutative]}"

    @property
    def gloss(self) -> str:
        """What a model with it does, in a few words."""
        return GLOSS[self.number] if self.solution is None else SOLUTION_GLOSS[self.solution]

    @property
    def colour(self) -> str:
        """Its colour in pictures, in CSS; that of the surrounding text where it has none."""
        return {**COLOURS, **SOLUTION_COLOURS}.get(self.label, "currentColor")


def phase_by_definition(
    train: Accuracy | float,
    id: Accuracy | float,
    ood: Accuracy | float | None,
    commutativity: Accuracy | float | None,
    *,
    standard_errors: int | float | None = None,
    train_source: str = TRAINING_SET,
    asked: tuple[str, str] = ("held-out keys", "unseen pairs"),
    chance: float = 0.0,
) -> Phase:
    """The phase that follows from four accuracies.

    Args:
        train: accuracy on the training data, 0..1.
        id: accuracy on held-out data of the training distribution, 0..1.
        ood: accuracy on what is left out of training (unseen pairs against the inferential target), 0..1;
            None where nothing is.
        commutativity: share of mirrored sequences with the same answer, 0..1; None without such pairs.
        standard_errors: how many standard errors must lie between an accuracy and its threshold, >= 0; plain
            numbers have a standard error of 0. None: accuracies are taken as exact.
        train_source: what `train` was measured on, if not the training data themselves: a model that
            memorised its own data may be wrong on `fresh noise` or `every training sum`.
        asked: what ID and OOD are measured on, in the words of the reason.
        chance: accuracy of random answers, 0..1. Each threshold t of train, ID and OOD becomes
            `chance + (1 - chance) t`: for one of two labels .95, .95 and .75.

    Returns:
        Phase 1: ID < .90. Phase 2: ID >= .90 and OOD <= .50, with commutativity if that is >= .70. Phase 3:
        ID >= .90 and OOD > .50. No phase for train < .90 (underfit, or training data unknown), for ID < .90
        with OOD > .50 (inconsistent, no phase of the papers), for numbers that are not finite, or without
        unseen pairs. With `standard_errors` there is also no phase if an accuracy that decides is too near to
        its threshold (borderline), and Phase 2 with `commutative` None if only commutativity is.

    >>> phase_by_definition(train=1.0, id=0.99, ood=0.10, commutativity=0.88).label
    'Phase 2 with commutativity'
    >>> phase_by_definition(train=0.99, id=0.86, ood=0.96, commutativity=0.9).label
    'undecided: inconsistent'
    >>> phase_by_definition(1.0, 0.99, Accuracy(0.52, 0.02, 600), 0.9, standard_errors=2).cause
    'borderline'
    >>> phase_by_definition(1.0, 0.99, 0.6, None, chance=0.5).label
    'Phase 2'

    Source: the phases of arXiv 2405.05409 and 2501.08537.
    """
    measured = _measured({"train": train, "ID": id, "OOD": ood, "commutativity": commutativity})
    values = {name: one.value for name, one in measured.items()}
    if not all(map(math.isfinite, values.values())):
        return Phase.undecided("not finite", "the model's numbers are NaN or infinite")
    thresholds = _thresholds(chance)
    phase = _phase_of(values, thresholds, train_source, asked)
    if standard_errors is None or phase.cause == "training data unknown":
        return phase
    is_fit = values["train"] >= thresholds["train"] and "OOD" in values
    near = _near(measured, thresholds, standard_errors, train_source)
    deciding = ("train", "ID", "OOD") if is_fit else ("train",)
    if found := [near[name] for name in deciding if name in near]:
        return Phase.undecided("borderline", f"{'; '.join(found)}; by definition {phase.label}")
    if phase.number == 2 and "commutativity" in near:
        return Phase(2, None, f"{phase.reason}; borderline: {near['commutativity']}")
    return phase


def learnt_by_definition(
    train: Accuracy | float,
    id: Accuracy | float | None,
    mirrored: Accuracy | float | None = None,
    *,
    standard_errors: int | float | None = None,
    train_source: str = TRAINING_SET,
    chance: float = 0.0,
) -> Phase:
    """What a model has learnt of a task without OOD, which holds a random share out.

    Args:
        train: accuracy on the training data, 0..1.
        id: accuracy on what is held out, 0..1; None where nothing is.
        mirrored: accuracy on held-out pairs (a, b) whose mirror (b, a) was trained, 0..1; None without any.
        standard_errors: as for `phase_by_definition`.
        train_source: as for `phase_by_definition`.
        chance: accuracy of random answers, 0..1, as for `phase_by_definition`.

    Returns:
        `generalises`: ID >= .90. `knows that the order does not matter`: ID < .90 and mirrored >= .90.
        `memorises`: both are below. No label for train < .90 (underfit, or training data unknown), for
        numbers that are not finite, if nothing is held out, or with `standard_errors` if an accuracy that
        decides is too near to .90 (borderline).

    >>> learnt_by_definition(1.0, 0.43, 0.98).label
    'knows that the order does not matter'

    Source: ours. The middle label is the symmetric solution of arXiv 2405.05409.
    """
    measured = _measured({"train": train, "ID": id, "mirrored": mirrored})
    values = {name: one.value for name, one in measured.items()}
    if not all(map(math.isfinite, values.values())):
        return Phase.undecided("not finite", "the model's numbers are NaN or infinite")
    thresholds = _thresholds(chance)
    if (unfit := _unfit(values["train"], thresholds["train"], train_source)) is not None:
        phase = unfit
    elif "ID" not in values:
        return Phase.undecided(
            "no unseen pair", "nothing is held out of training, so nothing tests what it learnt"
        )
    else:
        knows_order = values.get("mirrored", 0.0) >= thresholds["ID"]
        learnt = LEARNT[2 if values["ID"] >= thresholds["ID"] else int(knows_order)]
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        phase = Phase(None, None, f"{numbers}: it {SOLUTION_GLOSS[learnt]}", solution=learnt)
    if standard_errors is None or phase.cause == "training data unknown":
        return phase
    near = _near(measured, dict.fromkeys(values, thresholds["ID"]), standard_errors, train_source)
    deciding = [
        "train",
        *(["ID"] if unfit is None else []),
        *(["mirrored"] if phase.solution in LEARNT[:2] else []),
    ]
    if found := [near[name] for name in deciding if name in near]:
        return Phase.undecided("borderline", f"{'; '.join(found)}; by definition {phase.label}")
    return phase


def _measured(given: Mapping[str, Accuracy | float | None]) -> dict[str, Accuracy]:
    return {
        name: one if isinstance(one, Accuracy) else Accuracy(one, 0.0, 0)
        for name, one in given.items()
        if one is not None
    }


def _near(
    measured: Mapping[str, Accuracy],
    thresholds: Mapping[str, float],
    standard_errors: int | float,
    train_source: str,
) -> dict[str, str]:
    """The accuracies that are too near to their thresholds, in words."""
    given = f" from {measured['train'].n_sequences:,} distinct sequences"
    said = {"train": given if train_source == TRAINING_SET and measured["train"].n_sequences else ""}
    return {
        name: f"{name} {one}{said.get(name, '')} is within {standard_errors:g} standard errors of "
        f"{thresholds[name]:.2f}"
        for name, one in measured.items()
        if abs(one.value - thresholds[name]) <= standard_errors * one.standard_error + _ROUNDING
    }


def _unfit(train: float, fit_from: float, train_source: str) -> Phase | None:
    """Why there is no phase for a train accuracy below its threshold; None for one that is not."""
    if train >= fit_from:
        return None
    if train_source == TRAINING_SET:
        return Phase.undecided(
            "underfit", f"train accuracy {train:.3f} is below {fit_from:.2f}; train longer"
        )
    return Phase.undecided(
        "training data unknown",
        f"train accuracy {train:.3f} on {train_source} is below {fit_from:.2f}, and a model that "
        "memorised its training data has that too; give these data: training_set=(tokens, targets) in "
        "Python, --train-data FILE on the command line",
    )


def _thresholds(chance: float) -> dict[str, float]:
    """The threshold of each accuracy; those of train, ID and OOD are rescaled from 0..1 to chance..1."""
    return _THRESHOLDS | {name: chance + (1 - chance) * _THRESHOLDS[name] for name in ("train", "ID", "OOD")}


def passed_at(
    log: Iterable[Mapping[str, Any]], metrics: Iterable[Metric], chance: float = 0.0
) -> dict[str, int | None]:
    """The steps at which a run passed the thresholds for good: train and ID >= .90, OOD > .50.

    Args:
        log: lines of a run, oldest first; those that hold no accuracy are skipped.
        metrics: the metrics of its task.
        chance: accuracy of random answers, 0..1, as for `phase_by_definition`.

    Returns:
        `train`, `id` and `ood` -> the first step from which the accuracy passes in every later evaluation
        too; None if it does not pass in the last. Without `ood` for a task without OOD. Empty for a task
        without labels.

    >>> from anchorlens import AnchorTask
    >>> lines = [{"step": n, "ood_accuracy": ood} for n, ood in ((10, 0.6), (20, 0.4), (30, 0.7), (40, 0.8))]
    >>> passed_at(lines, AnchorTask().metrics)
    {'train': None, 'id': None, 'ood': 30}
    """
    metrics, thresholds = tuple(metrics), _thresholds(chance)
    if not has_labels(metrics):
        return {}
    logged_as = {metric.name: metric.logged_as for metric in metrics}
    found: dict[str, int | None] = {name: None for name in ("train", "id", "ood") if name in logged_as}
    for line in log:
        for name in found:
            value = line.get(logged_as[name])
            if value is None:
                continue
            passes = value > thresholds["OOD"] if name == "ood" else value >= thresholds[_TITLES[name]]
            if not passes:
                found[name] = None
            elif found[name] is None:
                found[name] = line["step"]
    return found


def course_in_words(train: int | None, id: int | None) -> str:
    """When a run fit its training data and when it generalised, from the steps of `passed_at`.

    >>> course_in_words(180, 6480)
    'fits after 180 steps, generalises 6,300 later'
    >>> course_in_words(180, None)
    'fits after 180 steps, and does not generalise by its end'
    """
    if train is None:
        return "does not fit by its end"
    fits = f"fits after {train:,} steps"
    if id is None:
        return f"{fits}, and does not generalise by its end"
    return f"{fits}, generalises {f'{id - train:,} later' if id > train else 'by then'}"


def _phase_of(
    values: Mapping[str, float], thresholds: Mapping[str, float], train_source: str, asked: tuple[str, str]
) -> Phase:
    """The definition itself, for finite accuracies; undefined ones are missing from `values`."""
    train, id, ood, commutativity = map(values.get, thresholds)
    fit_from, id_from, ood_above, commutative_from = thresholds.values()
    assert train is not None and id is not None
    if (unfit := _unfit(train, fit_from, train_source)) is not None:
        return unfit
    if ood is None:
        return Phase.undecided(
            "no unseen pair", "the task holds nothing out of training, so it has no OOD test"
        )
    numbers = f"train {train:.3f}, ID {id:.3f}, OOD {ood:.3f}"
    if id < id_from:
        if ood > ood_above:
            return Phase.undecided("inconsistent", f"{numbers}; the papers define no phase for these")
        return Phase(1, None, f"{numbers}: it fits its training data and fails on {asked[0]}")
    if ood > ood_above:
        return Phase(3, None, f"{numbers}: it composes {asked[1]}")
    commutative = None
    if commutativity is not None:
        commutative = commutativity >= commutative_from
        numbers = f"{numbers}, commutativity {commutativity:.3f}"
    return Phase(2, commutative, f"{numbers}: it answers {asked[0]} and fails on {asked[1]}")
