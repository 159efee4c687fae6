"""What the fit is worth: agreement with behaviour on runs that it has not seen, with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from anchorlens.tasks.shared.phases import ID_THRESHOLD, LABELS, OOD_THRESHOLD, PHASES
from anchorlens.verdict.calibration import Calibration
from anchorlens.verdict.mechanism import named
from anchorlens.verdict.questions import QuestionModel
from calibration.fit import (
    QUESTIONS,
    fit,
    given,
    left_out,
    of_early,
    values_of,
)
from calibration.fit import Table as Rows
from calibration.runs import GROUPS

N_BINS, N_RESAMPLES = 10, 1000
ALL, SEEDS, FITTED = "all held out", "held-out seeds", "fitted seeds, each left out"
UNSEEN = tuple(group for group in GROUPS if group.startswith("unseen "))
Hits = Mapping[tuple[float, str], tuple[int, Sequence[int]]]
"""(moment, of which runs) -> their number, and how often each way has the end right."""


@dataclass(frozen=True)
class Said:
    """What behaviour and a verdict say of one run."""

    group: str
    behaviour: str
    """Label by definition."""
    borderline: bool
    """Whether a number that decides is within two standard errors of its threshold."""
    distance: float
    """Of the accuracy that decides from its threshold: ID of Phase 1, OOD of the others."""
    probabilities: Mapping[str, float]
    least: float
    """A phase less probable is not named."""

    @property
    def of_phases(self) -> dict[int, float]:
        """Phase -> probability."""
        found: dict[int, float] = {}
        for label in LABELS:
            phase = PHASES[label][0]
            found[phase] = found.get(phase, 0.0) + self.probabilities[label]
        return found

    @property
    def sure(self) -> float:
        """Probability of the most probable phase."""
        return max(self.of_phases.values())

    @property
    def is_named(self) -> bool:
        """Whether the verdict names a phase."""
        return self.sure >= self.least

    @property
    def right(self) -> bool:
        """Whether the most probable phase is that by definition."""
        return max(self.of_phases.items(), key=lambda item: item[1])[0] == PHASES[self.behaviour][0]

    @property
    def commutative(self) -> bool | None:
        """Of Phase 2, what the verdict says of commutativity."""
        return named(self.probabilities, self.least).commutative


def verdicts(rows: Rows, model: QuestionModel, temperature: Sequence[float] | None = None) -> list[Said]:
    """What is said of every run that has a phase by definition.

    Args:
        rows: runs, one row each.
        model: the verdict.
        temperature: what the log-odds of each row are divided by.
    """
    values, spread = values_of(rows), [1.0] * len(rows) if temperature is None else temperature
    probabilities = [
        model.probabilities(given(one), by) for (_, one), by in zip(values.iterrows(), spread, strict=True)
    ]
    return said_of(rows, probabilities, model.least_probability)


def temperature(rows: Rows, calibrated: Calibration) -> list[float]:
    """What the calibration divides the log-odds of each run by, for its shape."""
    names = ("variant", "n_layers", "n_heads", "d_model")
    return [calibrated.temperature({name: row[name] for name in names}) for _, row in rows.iterrows()]


def interval(hits: int, n: int) -> str:
    """`share (low to high), hits of n`, the 95 % Wilson interval, in percent."""
    if n == 0:
        return "-"
    low, high = binomtest(hits, n).proportion_ci(method="wilson")
    return f"{hits / n:.1%} ({low:.0%} to {high:.0%}), {hits} of {n}"


def share_right(said: Sequence[Said]) -> str:
    """Of those that are named, how many rightly."""
    some = [one for one in said if one.is_named]
    return interval(sum(one.right for one in some), len(some))


def right_commutativity(said: Sequence[Said]) -> str:
    """Of those in Phase 2 by both, of which commutativity is said, how many rightly."""
    both = [
        one for one in said if PHASES[one.behaviour][0] == 2 and one.is_named and one.commutative is not None
    ]
    return interval(sum(one.commutative == PHASES[one.behaviour][1] for one in both), len(both))


def calibration_error(said: Sequence[Said]) -> str:
    """Expected calibration error of the most probable phase, in ten bins, with a 95 % bootstrap interval."""
    if not said:
        return "-"
    sure = np.array([one.sure for one in said])
    right = np.array([one.right for one in said], float)
    random = np.random.default_rng(0)
    samples = [random.integers(len(said), size=len(said)) for _ in range(N_RESAMPLES)]
    errors = [_error(sure[sample], right[sample]) for sample in samples]
    low, high = np.quantile(errors, [0.025, 0.975])
    return f"{_error(sure, right):.3f} ({low:.3f} to {high:.3f})"


def _error(sure: np.ndarray, right: np.ndarray) -> float:
    bins = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    there = [bins == b for b in range(N_BINS) if (bins == b).any()]
    return float(sum(of.sum() * abs(sure[of].mean() - right[of].mean()) for of in there)) / len(sure)


def by_group(said: Sequence[Said]) -> dict[str, list[Said]]:
    """Group -> what is said of its runs, those that are fit on first, and all that are held out last."""
    found = {group: [one for one in said if one.group == group] for group in GROUPS}
    return {**found, ALL: [one for one in said if one.group != "fit"]}


def selective(said: Sequence[Said]) -> list[tuple[float, float, int]]:
    """(share of models named, share of them right, how many), the surest first."""
    ordered = sorted(said, key=lambda one: -one.sure)
    right = np.cumsum([one.right for one in ordered])
    n = len(ordered)
    return [((k + 1) / n, float(right[k]) / (k + 1), k + 1) for k in range(n)]


def early_hits(rows: Rows, early: Mapping[float, QuestionModel]) -> Hits:
    """How often the early verdict has the end right, and how often each of its two parts alone.

    Of the seeds that it is fit on, each from a fit without it; and of what is held out.

    Args:
        rows: of the whole table.
        early: moment -> the early verdict.

    Returns:
        (moment, of which runs) -> their number, and the hits of the early verdict, of the inside alone and of
        the behaviour then alone.
    """
    found = {}
    questions = tuple(QUESTIONS)
    for moment, model in early.items():
        then = rows[rows["moment"] == moment]
        mine = then[then["group"] == "fit"].reset_index(drop=True)
        others = then[then["group"] != "fit"]
        inside = QuestionModel.from_dict(fit(mine, of_early(mine, inside_alone=True), questions))
        values = [given(row) for _, row in of_early(others).values.iterrows()]
        said = {
            FITTED: (
                mine,
                left_out(mine, of_early(mine), questions),
                left_out(mine, of_early(mine, inside_alone=True), questions),
            ),
            ALL: (others, *([one.probabilities(row) for row in values] for one in (model, inside))),
        }
        for title, (runs, *probabilities) in said.items():
            ends = [_end(label) for label in runs["label"]]
            guesses = [[_most_probable(one) for one in some] for some in probabilities]
            guesses.append([_end(label) for label in runs["now"]])
            hits = [sum(a == b for a, b in zip(ends, some, strict=True)) for some in guesses]
            found[moment, title] = (len(ends), hits)
    return found


def _most_probable(probabilities: Mapping[str, float]) -> int | None:
    """The phase that is most probable, its two forms of Phase 2 together; None for no phase."""
    found: dict[int | None, float] = {}
    for label, probability in probabilities.items():
        end = _end(label)
        found[end] = found.get(end, 0.0) + probability
    return max(found, key=lambda end: found[end])


def _end(label: str) -> int | None:
    """The phase of a label; None where there is none."""
    return PHASES[label][0] if label in PHASES else None


def said_of(rows: Rows, probabilities: Sequence[Mapping[str, float]], least: float) -> list[Said]:
    """What is said of every run that has a phase by definition, each with its probabilities."""
    return [
        Said(
            row["group"],
            row["label"],
            str(row["clear_label"]).startswith("undecided: borderline"),
            abs(row["id"] - ID_THRESHOLD if row["label"] == LABELS[0] else row["ood"] - OOD_THRESHOLD),
            one,
            least,
        )
        for (_, row), one in zip(rows.iterrows(), probabilities, strict=True)
        if row["label"] in LABELS
    ]
