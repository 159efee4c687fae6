"""The definition of the phases: from four accuracies to a phase, or to the reason why no phase is assigned.

A task that holds out only a random share has no OOD accuracy, and it has its own labels.

Sources: the phases are those of arXiv 2405.05409 and 2501.08537. The numeric thresholds and the labels
without OOD are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Record, Text
from anchorlens.tasks.shared.measures import Accuracy, Metric, has_labels

FIT_THRESHOLD = 0.90
"""The train accuracy below which a model is underfit and has no phase."""
ID_THRESHOLD = 0.90
"""The ID accuracy below which a model is in Phase 1, or `memorises` without OOD. The threshold also applies
to pairs whose reversed pair is trained."""
IN_PART = 0.30
"""The held-out accuracy, relative to train accuracy and both above chance, from which a model of training
data generalises in part."""
OOD_THRESHOLD = 0.50
"""The OOD accuracy above which a model is in Phase 3."""
COMMUTATIVITY_THRESHOLD = 0.70
"""The commutativity from which Phase 2 is `with commutativity`."""
CLEAR = 2
"""The number of standard errors beyond which an accuracy is clearly above or below its threshold."""
_THRESHOLDS = {
    "train": FIT_THRESHOLD,
    "ID": ID_THRESHOLD,
    "OOD": OOD_THRESHOLD,
    "commutativity": COMMUTATIVITY_THRESHOLD,
}
_TITLES = {"train": "train", "id": "ID"}
_ROUNDING = 1e-9
FEWEST_TRAINED = 20
"""The smallest number of distinct training sequences for a phase: 17 correct answers of 17 are not yet more
than two standard errors above 0.90."""

TRAINING_SET = "training set"
"""The data on which train accuracy is measured if the training data are known."""

Learnt = Literal["memorises", "knows that the order does not matter", "generalises"]
"""The label of a model of a task without OOD, by what the model has learnt."""
Memorisation = Literal["memorised", "learnt a rule"]
"""The label by the probes if no phase is calibrated, by how a model answers its training data."""
Solution = (
    Literal["inferential", "symmetric", "mixed by position", "other", "generalises in part"]
    | Learnt
    | Memorisation
)
"""The solution of a model: its answers to unseen pairs whose reversed pair is trained on a target other than
the composition, what it has learnt of a task without OOD, or its answers to training data."""

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
    "answered by look-up",
    "ambiguous",
]
"""The reason why no phase is assigned. Behaviour gives the first eleven; internals give the first three,
`underfit` and the last five. `between`: the ratio of `holdout` is neither that of models that memorised nor
that of models that learnt a rule. `answered by look-up`: a look-up in the other training data also answers
what `holdout` leaves out."""

PHASES: Mapping[str, tuple[Literal[1, 2, 3], bool | None]] = {
    "Phase 1": (1, None),
    "Phase 2 without commutativity": (2, False),
    "Phase 2 with commutativity": (2, True),
    "Phase 3": (3, None),
}
"""The phase of each label, and for Phase 2 whether it is commutative."""
LABELS = tuple(PHASES)
"""The phases, with Phase 2 in its two forms."""

SHORT: Mapping[str, str] = dict(zip(LABELS, ("1", "2 (not comm.)", "2 (comm.)", "3"), strict=True))
"""The short form of each label, after the word Phase, for narrow tables."""

COLOURS: Mapping[str, str] = dict(zip(LABELS, ("#C8553D", "#A87B00", "#3A7BC8", "#1E8A6A"), strict=True))
"""The colour of each label, with a contrast of at least 3:1 to white and to the dark page. Each colour is
always shown with its label."""

GLOSS: Mapping[int | None, str] = {
    1: "fits its training data, fails on held-out data",
    2: "generalises in distribution, not beyond",
    3: "composes the rules",
    None: "no phase",
}
"""The description of a model in each phase."""

LEARNT: tuple[Learnt, ...] = get_args(Learnt)
"""The labels of a task without OOD, in order."""
MEMORISATION: tuple[Memorisation, ...] = get_args(Memorisation)
"""The labels by the probes if no phase is calibrated."""
ORDER_ALONE = "knows that the order does not matter; whether more is not shown"
"""What `holdout` says of a model that answers a left-out row only from the same tokens in another order."""
NOT_PROMISED = "how many other inputs it answers is not shown"
"""What the label `learnt a rule` does not say."""
SOLUTION_LABELS: Mapping[Solution, str] = {
    "inferential": "inferential solution",
    "symmetric": "symmetric solution",
    "mixed by position": "solutions mixed by position",
    "other": "neither solution",
    **{label: label for label in (*LEARNT, *MEMORISATION)},
    "generalises in part": "generalises in part",
}
"""The label of each solution."""
_RED, _BROWN, _BLUE, _GREEN = COLOURS.values()
_IN_ORDER = (_GREEN, _BLUE, _BROWN, "#7A7F87", _RED, _BLUE, _GREEN, _RED, _GREEN, _BROWN)
SOLUTION_COLOURS: Mapping[str, str] = dict(zip(SOLUTION_LABELS.values(), _IN_ORDER, strict=True))
"""The colour of each label of a solution, with a contrast of at least 3:1 to white and to the dark page."""
SOLUTION_GLOSS: Mapping[Solution, str] = {
    "inferential": "composes the rules for unseen pairs",
    "symmetric": "gives an unseen pair the trained answer of the reversed pair",
    "mixed by position": "composes at some positions of the key and answers by symmetry at others",
    "other": "does not answer unseen pairs consistently by either solution",
    "memorises": "answers its training data but fails on held-out data",
    "knows that the order does not matter": "answers a held-out pair if the reversed pair is trained, but "
    "fails on the others",
    "generalises": "answers held-out data",
    "memorised": "forgets training data that are held out of further training",
    "learnt a rule": "still answers training data that are held out of further training",
    "generalises in part": "answers some of the held-out data",
}
"""The description of a model with each solution."""


@frozen_dataclass()
class Phase(Record):
    """A phase, a solution, or an undecided result.

    If the training data conflict with the composition of the rules, the solution describes the answers to
    unseen pairs. For a task without OOD data, the solution states what the model has learnt. For a probe
    verdict without a calibrated phase, the solution states whether the model memorised its training data or
    learnt a rule.

    Source: arXiv 2501.08537 for the phases, arXiv 2405.05409 for the solutions.
    """

    derived: ClassVar[tuple[str, ...]] = ("label",)
    number: Literal[1, 2, 3] | None
    """The phase: 1 memorises, 2 generalises in distribution, 3 composes rules; None: undecided."""
    commutative: bool | None
    """Whether commutativity is >= 0.70, for Phase 2; None for other phases or if commutativity is unknown."""
    reason: Text
    """The numbers that decided the phase, in words for people."""
    cause: Cause | None = None
    """The reason why no phase is assigned; None if one is."""
    solution: Solution | None = None
    """The model's answers to unseen pairs, if its training data conflict with the composition; what the model
    has learnt, if the task has no OOD; or, by the probes without a calibrated phase, whether it memorised."""

    @classmethod
    def undecided(cls, cause: Cause, why: str) -> Phase:
        """Return an undecided result, with a cause for programs and a reason for people."""
        return cls(None, None, f"{cause}: {why}", cause)

    @property
    def is_named(self) -> bool:
        """Whether a phase or a solution is assigned."""
        return self.number is not None or self.solution is not None

    @property
    def label(self) -> str:
        """The short name, such as `Phase 2 with commutativity` or `undecided: underfit`."""
        if self.solution is not None:
            return SOLUTION_LABELS[self.solution]
        if self.number is None:
            return f"undecided: {self.cause}" if self.cause else "undecided"
        suffix = {True: " with commutativity", False: " without commutativity", None: ""}
        return f"Phase {self.number}{suffix[self.commutative]}"

    @property
    def gloss(self) -> str:
        """The description of a model with this phase or solution, in a few words."""
        return GLOSS[self.number] if self.solution is None else SOLUTION_GLOSS[self.solution]

    @property
    def colour(self) -> str:
        """The CSS colour in figures, or the colour of the surrounding text if the phase has no colour."""
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
    """Return the phase that follows from four accuracies.

    Args:
        train: the accuracy on the training data, 0..1.
        id: the accuracy on held-out data of the training distribution, 0..1.
        ood: the accuracy on out-of-distribution data (unseen pairs against the inferential target), 0..1, or
            None for a task without out-of-distribution data.
        commutativity: the proportion of sequences whose reversed sequence gets the same answer, 0..1, or None
            without reversed pairs.
        standard_errors: the number of standard errors that must lie between an accuracy and its threshold, at
            least 0, or None for exact accuracies. Plain numbers have a standard error of 0.
        train_source: the data on which `train` was measured, if these are not the training data. A model that
            memorised its training data may be wrong on other data, such as `fresh noise` or `every training
            sum`.
        asked: the data on which ID and OOD accuracy are measured, as text for `Phase.reason`.
        chance: the accuracy of random answers, 0..1. Each threshold t of train, ID and OOD becomes `chance +
            (1 - chance) t`. With two equally frequent labels, the thresholds of train and ID are 0.95, and
            the threshold of OOD is 0.75.

    Returns:
        The phase is Phase 1 if ID accuracy is below 0.90. The phase is Phase 2 if ID accuracy is at least
        0.90 and OOD accuracy is at most 0.50. The label is `Phase 2 with commutativity` if `commutativity` is
        also at least 0.70. The phase is Phase 3 if ID accuracy is at least 0.90 and OOD accuracy is above
        0.50. The result is undecided (underfit, or unknown training data) if train accuracy is below 0.90.
        The result is undecided (inconsistent) if ID accuracy is below 0.90 and OOD accuracy is above 0.50.
        The result is also undecided if `ood` is None or an accuracy is not finite. With `standard_errors`,
        the result is undecided (borderline) if a deciding accuracy is within this number of standard errors
        of its threshold. If only commutativity is within this number of standard errors of its threshold, the
        phase is Phase 2 and `commutative` is None.

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
    thresholds = _thresholds(chance)
    phase = _phase_of(values, thresholds, train_source, asked)
    is_fit = values["train"] >= thresholds["train"] and "OOD" in values
    deciding = ("train", "ID", "OOD") if is_fit else ("train",)
    return _unless_near(phase, deciding, measured, thresholds, standard_errors, train_source)


def learnt_by_definition(
    train: Accuracy | float,
    id: Accuracy | float | None,
    mirrored: Accuracy | float | None = None,
    *,
    in_part: bool = False,
    standard_errors: int | float | None = None,
    train_source: str = TRAINING_SET,
    chance: float = 0.0,
) -> Phase:
    """Return the label of a model on a task that holds out random data and has no OOD data.

    Args:
        train: the accuracy on the training data, 0..1.
        id: the accuracy on the held-out data, 0..1, or None if the task holds out nothing.
        mirrored: the accuracy on held-out pairs (a, b) whose reversed pair (b, a) was trained, 0..1, or None
            without such pairs.
        in_part: whether the label is `generalises in part` for an ID accuracy from 0.30 to 0.90 of the train
            accuracy, both above chance.
        standard_errors: the number of standard errors, as in `phase_by_definition`.
        train_source: the data on which `train` was measured, as in `phase_by_definition`.
        chance: the accuracy of random answers, 0..1, as in `phase_by_definition`.

    Returns:
        The label is `generalises` if ID accuracy is at least 0.90. The label is `knows that the order does
        not matter` if ID accuracy is below 0.90 and `mirrored` is at least 0.90. The label is `memorises` if
        ID accuracy and `mirrored` are below 0.90. The result is undecided (underfit, or unknown training
        data) if train accuracy is below 0.90. The result is also undecided if a number is not finite or the
        task holds out nothing. With `standard_errors`, the result is also undecided (borderline) if a
        deciding accuracy is within this number of standard errors of 0.90.

    >>> learnt_by_definition(1.0, 0.43, 0.98).label
    'knows that the order does not matter'

    Source: our definition. The label `knows that the order does not matter` is the symmetric solution of
    arXiv 2405.05409.
    """
    measured = _measured({"train": train, "ID": id, "mirrored": mirrored})
    values = {name: one.value for name, one in measured.items()}
    thresholds = _thresholds(chance)
    if (unfit := _unfit(values, thresholds["train"], train_source)) is not None:
        phase = unfit
    elif "ID" not in values:
        why = "nothing is held out of training, so nothing tests what it learnt"
        return Phase.undecided("no unseen pair", why)
    else:
        knows_order = values.get("mirrored", 0.0) >= thresholds["ID"]
        learnt: Solution = LEARNT[2 if values["ID"] >= thresholds["ID"] else int(knows_order)]
        if in_part and learnt == LEARNT[0] and values["ID"] >= chance + IN_PART * (values["train"] - chance):
            learnt = "generalises in part"
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        phase = Phase(None, None, f"{numbers}: it {SOLUTION_GLOSS[learnt]}", solution=learnt)
    thresholds["mirrored"] = thresholds["ID"]
    deciding = ["train", *["ID"] * (unfit is None), *["mirrored"] * (phase.solution in LEARNT[:2])]
    return _unless_near(phase, deciding, measured, thresholds, standard_errors, train_source)


def _measured(given: Mapping[str, Accuracy | float | None]) -> dict[str, Accuracy]:
    return {
        name: one if isinstance(one, Accuracy) else Accuracy(one, 0.0, 0)
        for name, one in given.items()
        if one is not None
    }


def _unless_near(
    phase: Phase,
    deciding: Sequence[str],
    measured: Mapping[str, Accuracy],
    thresholds: Mapping[str, float],
    standard_errors: int | float | None,
    train_source: str,
) -> Phase:
    """Return the phase, or undecided if a deciding accuracy is too close to its threshold."""
    if standard_errors is None or phase.cause in ("training data unknown", "not finite"):
        return phase
    given = f" from {measured['train'].n_sequences:,} distinct sequences"
    said = {"train": given if train_source == TRAINING_SET and measured["train"].n_sequences else ""}
    near = {
        name: f"{name} {one}{said.get(name, '')} is within {standard_errors:g} standard errors of "
        f"{thresholds[name]:.2f}"
        for name, one in measured.items()
        if abs(one.value - thresholds[name]) <= standard_errors * one.standard_error + _ROUNDING
    }
    if found := [near[name] for name in deciding if name in near]:
        return Phase.undecided("borderline", f"{'; '.join(found)}; by definition {phase.label}")
    if phase.number == 2 and "commutativity" in near:
        return Phase(2, None, f"{phase.reason}; borderline: {near['commutativity']}")
    return phase


def _unfit(values: Mapping[str, float], fit_from: float, train_source: str) -> Phase | None:
    """Return the undecided phase of numbers that are not finite, or of a low train accuracy; else None."""
    if not all(map(math.isfinite, values.values())):
        return Phase.undecided("not finite", "the model's numbers are NaN or infinite")
    train = values["train"]
    if train >= fit_from:
        return None
    if train_source == TRAINING_SET:
        why = f"train accuracy {train:.3f} is below {fit_from:.2f}; train longer"
        return Phase.undecided("underfit", why)
    return Phase.undecided(
        "training data unknown",
        f"train accuracy {train:.3f} on {train_source} is below {fit_from:.2f}, and a model that "
        "memorised its training data has that too; give these data: training_set=(tokens, targets) in "
        "Python, --train-data FILE on the command line",
    )


def _thresholds(chance: float) -> dict[str, float]:
    """Return the threshold of each accuracy, with train, ID and OOD rescaled from 0..1 to chance..1."""
    return _THRESHOLDS | {name: chance + (1 - chance) * _THRESHOLDS[name] for name in ("train", "ID", "OOD")}


def passed_at(
    log: Iterable[Mapping[str, Any]], metrics: Iterable[Metric], chance: float = 0.0
) -> dict[str, int | None]:
    """Return the steps from which train and ID accuracy stayed at 0.90 or more, and OOD accuracy above 0.50.

    Args:
        log: the lines of a run, oldest first. Lines without an accuracy are skipped.
        metrics: the metrics of the run's task.
        chance: the accuracy of random answers, 0..1, as in `phase_by_definition`.

    Returns:
        A map from `train`, `id` and `ood` to the first step from which every evaluation passes the threshold.
        The step is None if the last evaluation does not pass the threshold. The map has no entry `ood` for a
        task without OOD data. The map is empty for a task without labels.

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


def course_in_words(
    train: int | None, id: int | None, steps: Sequence[int] = (), measured_at: str = "evaluations"
) -> str:
    """Describe whether a run grokked: when it fit its training data, and when it generalised.

    A run grokked if it generalises at twice the step from which it fits, or later.

    Args:
        train: the step from which train accuracy passes, from `passed_at`.
        id: the step from which ID accuracy passes, from `passed_at`.
        steps: the measured steps, ascending.
        measured_at: what was measured at these steps, as a plural.

    >>> course_in_words(180, 6480, range(0, 9000, 90))
    'grokked: fits after 180 steps, generalises 6,300 later (evaluations every 90)'
    >>> course_in_words(180, None)
    'did not grok: fits after 180 steps, and does not generalise by its end'
    >>> course_in_words(0, None, [0, 90])
    'did not grok: fits at its first measured step already (0), and does not generalise by its end'
    """
    if train is None:
        return "did not grok: does not fit by its end"
    fits = f"fits after {train:,} steps"
    if train in steps[:1]:
        fits = f"fits at its first measured step already ({train:,})"
    gaps = sorted({after - before for before, after in pairwise(steps) if after in (train, id)})
    every = f" ({measured_at} every {' to '.join(f'{gap:,}' for gap in gaps)})" if gaps else ""
    if id is None:
        return f"did not grok: {fits}, and does not generalise by its end"
    later = f"{id - train:,} later" if id > train else "by then"
    grokked = "grokked" if id > train and id >= 2 * train else "did not grok"
    return f"{grokked}: {fits}, generalises {later}{every}"


def _phase_of(
    values: Mapping[str, float], thresholds: Mapping[str, float], train_source: str, asked: tuple[str, str]
) -> Phase:
    """Apply the definition to finite accuracies; `values` holds only defined accuracies."""
    train, id, ood, commutativity = map(values.get, thresholds)
    fit_from, id_from, ood_above, commutative_from = thresholds.values()
    assert train is not None and id is not None
    if (unfit := _unfit(values, fit_from, train_source)) is not None:
        return unfit
    if ood is None:
        why = "the task holds nothing out of training, so it has no OOD test"
        return Phase.undecided("no unseen pair", why)
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
