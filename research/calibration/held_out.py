"""What the fit is worth: agreement with behaviour on runs that it has not seen, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorlens.tasks.shared.phases import ID_THRESHOLD, LABELS, OOD_THRESHOLD
from anchorlens.verdict.calibration import CalibrationRange, LogisticModel, Values
from anchorlens.verdict.probe_verdict import NUMBERS, by_phase, is_settled, likeliest_phase
from anchorlens.verdict.readings import COSTLY, READINGS
from calibration.compared import ends_by_hyperparameters
from calibration.fit import UNDECIDED, given, label_of, values_of
from calibration.runs import FITTED, GROUPS, PAPERS, PAPERS_HELD_OUT, SECOND
from calibration.votes import Table as Rows

N_BINS, N_RESAMPLES = 10, 2000
ALL = "all held out"
FEW_TASKS = 5
"""Of fewer tasks, runs are drawn: each has hyperparameters and a seed of its own."""
OF_PAPERS = (PAPERS, PAPERS_HELD_OUT, "second: papers", "second, held-out: papers")


@dataclass(frozen=True)
class Said:
    """What behaviour and a verdict say of one run that has a phase, or a solution, by definition."""

    group: str
    task: str
    truth: str
    """Label of its phase or its solution."""
    borderline: bool
    """Whether a number that decides is within two standard errors of its threshold."""
    distance: float
    """Of the accuracy that decides from its threshold: ID of Phase 1, OOD of the others."""
    probabilities: Mapping[str, float]
    least: float
    """A phase or solution less probable is not named."""

    @property
    def ends(self) -> dict[Any, float]:
        """Phase, both forms of Phase 2 together, or solution -> probability."""
        return by_phase(self.probabilities)

    @property
    def sure(self) -> float:
        """Probability of the most probable end."""
        return max(self.ends.values())

    @property
    def is_named(self) -> bool:
        """Whether the verdict names one."""
        return self.sure >= self.least

    @property
    def right(self) -> bool:
        """Whether the most probable one is that by definition."""
        return max(self.ends, key=self.ends.__getitem__) == NUMBERS.get(self.truth, self.truth)

    @property
    def commutative(self) -> bool | None:
        """Of Phase 2, what the verdict says of commutativity."""
        return likeliest_phase(self.probabilities, self.least).commutative


def verdicts(
    rows: Rows,
    by: Mapping[str, LogisticModel],
    distances: Sequence[float] | None = None,
    *,
    costly: Sequence[str] = COSTLY,
) -> list[Said]:
    """What is said of every run that has a phase, or a solution, by definition.

    Args:
        rows: runs, one row each.
        by: regime -> its verdict.
        distances: of each from what the verdict was fit on; 0 if left out.
        costly: the costly probes whose readings are used.
    """
    spread = [0.0] * len(rows) if distances is None else distances
    probabilities = []
    of_each = models_of(rows, by)
    for model, (_, values), away in zip(of_each, values_of(rows).iterrows(), spread, strict=True):
        there = given(values)
        probabilities.append(model.probabilities(with_costly(there, costly), away))
    return said_of(rows, probabilities, {regime: model.least_probability for regime, model in by.items()})


def models_of(rows: Rows, by: Mapping[str, LogisticModel]) -> list[LogisticModel]:
    """The verdict of each run: where the order of two anchors matters, that without commutativity."""
    regimes = zip(rows["regime"], rows["commutes"], strict=True)
    return [
        by[regime] if commutes or regime == "conflict" else by[regime].without_commutativity()
        for regime, commutes in regimes
    ]


def with_costly(values: Values, costly: Sequence[str]) -> dict[str, float | None]:
    """The readings of a model without those of all other costly probes."""
    left_out = {one.name for one in READINGS if one.measurement in COSTLY and one.measurement not in costly}
    return {name: value for name, value in values.items() if name not in left_out}


def needed(model: LogisticModel, values: Values, distance: float) -> Sequence[str]:
    """The costly probes that a verdict applies to a model, because they could change its label."""
    for place in range(len(COSTLY)):
        used = with_costly(values, COSTLY[:place])
        if is_settled(model, used, COSTLY[place:], distance):
            return COSTLY[:place]
    return COSTLY


def said_of(
    rows: Rows, probabilities: Sequence[Mapping[str, float]], least: Mapping[str, float]
) -> list[Said]:
    """What is said of every run that has a phase or a solution, each with its probabilities."""
    found = []
    for (_, row), one in zip(rows.iterrows(), probabilities, strict=True):
        truth = label_of(row)
        if truth == UNDECIDED:
            continue
        deciding = ("id", ID_THRESHOLD) if truth == LABELS[0] else ("ood", OOD_THRESHOLD)
        distance = abs(row[deciding[0]] - deciding[1])
        near = distance <= 2 * row[f"{deciding[0]}_error"]
        about = (row["group"], row["task"], truth, near, distance)
        found.append(Said(*about, one, least[row["regime"]]))
    return found


def by_hyperparameters(ends: Rows) -> list[Said]:
    """What hyperparameters alone say of every held-out run of `reasoning` that has a phase."""
    mine = ends[ends["regime"] == "reasoning"]
    fitted, asked = (mine[mine["group"].isin(FITTED) == known] for known in (True, False))
    if asked.empty:
        return []
    has_phase = [label_of(row) != UNDECIDED for _, row in fitted.iterrows()]
    return said_of(asked, ends_by_hyperparameters(fitted[has_phase], asked), {"reasoning": 0.0})


def distances(rows: Rows, known: CalibrationRange) -> list[float]:
    """How far each run is from what a verdict was fit on."""
    names = [name for name in known.known if name in rows]
    return [known.distance({name: row[name] for name in names}) for _, row in rows.iterrows()]


def resampled(said: Sequence[Said], number: Callable[[Sequence[Said]], float]) -> tuple[float, float]:
    """95 % interval of a number of some runs, from tasks drawn with replacement.

    Runs of one task are not independent of each other; of the papers' own task, and of fewer than five, runs
    are drawn, each of which has hyperparameters of its own.
    """
    tasks: dict[object, list[Said]] = {}
    few = len({one.task for one in said}) < FEW_TASKS
    for k, one in enumerate(said):
        tasks.setdefault(k if few or one.group in OF_PAPERS else one.task, []).append(one)
    units, random = list(tasks.values()), np.random.default_rng(0)
    draws = random.integers(0, len(units), (N_RESAMPLES, len(units)))
    numbers = [number([one for k in draw for one in units[k]]) for draw in draws]
    low, high = np.nanquantile(numbers, [0.025, 0.975])
    return float(low), float(high)


def share(said: Sequence[Said]) -> str:
    """`share right (low to high), hits of n`, in percent."""
    if not said:
        return "-"
    hits = sum(one.right for one in said)
    low, high = resampled(said, lambda some: float(np.mean([one.right for one in some])))
    return f"{hits / len(said):.1%} ({low:.0%} to {high:.0%}), {hits} of {len(said)}"


def share_right(said: Sequence[Said]) -> str:
    """Of those that are named, how many rightly."""
    return share([one for one in said if one.is_named])


def share_assigned(said: Sequence[Said]) -> str:
    """Of all, how many are named, and rightly."""
    hits = [one.is_named and one.right for one in said]
    return f"{np.mean(hits):.1%}, {sum(hits)} of {len(hits)}" if said else "-"


def right_commutativity(said: Sequence[Said]) -> str:
    """In Phase 2, where the verdict says whether it is commutative: how often rightly."""
    some = [one for one in said if one.truth in LABELS[1:3] and one.commutative is not None]
    if not some:
        return "-"
    hits = sum(one.commutative == (one.truth == LABELS[2]) for one in some)
    return f"{hits / len(some):.0%}, {hits} of {len(some)}"


def calibration_error(said: Sequence[Said]) -> str:
    """Expected calibration error over ten bins of the largest probability, with its interval.

    A small sample has one even where the probabilities are right: every bin holds a few runs.
    """
    if not said:
        return "-"
    low, high = resampled(said, _error)
    return f"{_error(said):.3f} ({low:.3f} to {high:.3f})"


def _error(said: Sequence[Said]) -> float:
    sure = np.array([one.sure for one in said])
    right = np.array([one.right for one in said])
    bins = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    there = [bins == b for b in range(N_BINS) if (bins == b).any()]
    return float(sum(of.sum() * abs(sure[of].mean() - right[of].mean()) for of in there)) / len(sure)


def by_group(said: Sequence[Said]) -> dict[str, list[Said]]:
    """Group -> what is said of its runs: those fit on, those held out, and all of these."""
    groups = dict.fromkeys((*FITTED, *GROUPS, *SECOND))
    found = {group: [one for one in said if one.group == group] for group in groups}
    return {**found, ALL: [one for one in said if is_held_out(one.group)]}


def is_held_out(group: str) -> bool:
    """Whether nothing was fit on a group."""
    return group not in FITTED


def selective(said: Sequence[Said]) -> list[tuple[float, float, int]]:
    """(share of models named, share of them right, how many), the surest first."""
    ordered = sorted(said, key=lambda one: -one.sure)
    right = np.cumsum([one.right for one in ordered])
    n = len(ordered)
    return [((k + 1) / n, float(right[k]) / (k + 1), k + 1) for k in range(n)]
