"""The fit: each reading's log-odds by itself, then non-negative weights, question by question and regime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from anchorlens.probes.two_anchor.survival import DOSES, FEWEST_UPDATES
from anchorlens.tasks.shared.phases import (
    COMMUTATIVITY_THRESHOLD,
    FIT_THRESHOLD,
    ID_THRESHOLD,
    LABELS,
    OOD_THRESHOLD,
)
from anchorlens.verdict.calibration import (
    SOLUTIONS,
    LogisticModel,
    Question,
    QuestionFit,
    Regime,
)
from anchorlens.verdict.readings import READINGS, Reading
from calibration.directions import DIRECTED, DirectedReading
from calibration.votes import Column, Table, fit_own_votes, said_by_all
from calibration.weights import BY_ACCURACY, STRENGTHS, Regression, loss

MIDDLE = (0.1, 0.9)
"""Quantiles of the ranges that are shown."""
BY_PROBES = tuple(reading for reading in DIRECTED if reading.sees != "unseen pairs")
LEAST_ANSWERS = 5
"""Where fewer runs answer yes, or no, nothing is fit: the answer is as frequent as among them."""
LEAST_WIDENING = 1.05
BEYOND = ("d_model", "n_layers", "variant", "n_anchors", "kind")
"""What is left out of the fit, value by value, to learn how much less sure to be of what it has not seen."""


@dataclass(frozen=True)
class Asked:
    """A question of the fit: of which runs it is asked, and what each answers, by definition."""

    of: Callable[[Table], Any]
    yes: Callable[[Table], Any]
    accuracy: str = ""
    """The number that `yes` is a threshold of, where there is one."""


def _fits(rows: Table) -> Any:
    return rows["train"] >= FIT_THRESHOLD


def _generalises(rows: Table) -> Any:
    return _fits(rows) & (rows["id"] >= ID_THRESHOLD)


def _has_phase(rows: Table) -> Any:
    return _fits(rows) & ((rows["id"] >= ID_THRESHOLD) | (rows["ood"] <= OOD_THRESHOLD))


QUESTIONS: Mapping[Question, Asked] = {
    "generalises": Asked(_has_phase, lambda rows: rows["id"] >= ID_THRESHOLD, "id"),
    "composes": Asked(_generalises, lambda rows: rows["ood"] > OOD_THRESHOLD, "ood"),
    "commutative": Asked(
        lambda rows: _generalises(rows) & (rows["ood"] <= OOD_THRESHOLD) & rows["commutes"],
        lambda rows: rows["commutativity"] >= COMMUTATIVITY_THRESHOLD,
        "commutativity",
    ),
    "inferential": Asked(_fits, lambda rows: rows["solution"] == "inferential", "ood"),
    "symmetric": Asked(
        lambda rows: _fits(rows) & (rows["solution"] != "inferential"),
        lambda rows: rows["solution"] == "symmetric",
        "symmetric",
    ),
    "mixed by position": Asked(
        lambda rows: _fits(rows) & rows["solution"].isin(["mixed by position", "other"]),
        lambda rows: rows["solution"] == "mixed by position",
    ),
}
"""Every question, in the order in which they are asked."""
OF_REGIME: Mapping[Regime, tuple[Question, ...]] = {
    "reasoning": ("generalises", "composes", "commutative"),
    "conflict": ("inferential", "symmetric", "mixed by position"),
}
"""Regime -> the questions that are asked of a trained model."""
UNDECIDED = "undecided"
"""The label of a run that ends without a phase."""


def label_of(row: Column) -> str:
    """What a run came to by definition: a phase, or in conflict a solution; else `undecided`.

    Where the order of two anchors matters there is one Phase 2.
    """
    if row["regime"] == "conflict":
        return str(row["solution"]) if _fits(row) else UNDECIDED
    if not _has_phase(row):
        return UNDECIDED
    if row["id"] < ID_THRESHOLD:
        return LABELS[0]
    if row["ood"] > OOD_THRESHOLD:
        return LABELS[3]
    if not row["commutes"]:
        return "Phase 2"
    return LABELS[2] if row["commutativity"] >= COMMUTATIVITY_THRESHOLD else LABELS[1]


def values_of(rows: Table, readings: Sequence[Reading] = READINGS) -> Table:
    """The readings of some runs from the zoo's numbers: a row for each, NaN where there is none."""
    found = {}
    for reading in readings:
        column = f"{reading.measurement}.{reading.field}"
        none = pd.Series(np.nan, rows.index)
        numbers = rows.get(column, none)
        if reading.over_training:
            training = rows.get("training.margin", none)
            numbers = numbers / training.where(training > 0)
        widths = rows["d_model"]
        found[reading.name] = [
            reading.of(None if np.isnan(number) else float(number), SimpleNamespace(d_model=width))
            for number, width in zip(numbers, widths, strict=True)
        ]
    return pd.DataFrame(found, index=rows.index, dtype=float)


def survival_at(rows: Table, least_updates: float = FEWEST_UPDATES) -> Column:
    """Survival of each run at the first dose after which the other pairs take so many updates on average.

    Where none does, that at the largest dose that was measured; NaN where there is none.
    """
    found = pd.Series(np.nan, rows.index)
    enough = pd.Series(False, rows.index)
    for dose in DOSES:
        updates = rows[f"survival at {dose:g}.mean_updates"]
        taken = ~enough & updates.notna()
        found[taken] = rows.loc[taken, f"survival at {dose:g}.survival"]
        enough |= updates >= least_updates
    return found


@dataclass(frozen=True)
class Evidence:
    """What a fit of some runs may go by."""

    values: Table
    """A row for each run, a column for each reading."""
    signs: Callable[[Question], Mapping[str, int]]
    """Question -> reading -> the direction in which it speaks for yes, 0 for either, as the data say."""
    regression: Regression
    """How it is put together."""


def of_trained(
    rows: Table, readings: Sequence[DirectedReading], regression: Regression = BY_ACCURACY
) -> Evidence:
    """Readings of trained models; each may speak in its own direction alone.

    They tell how large an accuracy is, of runs far from its threshold too.
    """
    return Evidence(values_of(rows, readings), lambda which: signs_of(readings, which), regression)


def fit(rows: Table, evidence: Evidence, questions: Sequence[Question]) -> dict[str, Any]:
    """A model of some questions, as JSON data, with the ranges of all readings.

    Args:
        rows: of the runs it is fit on, one each.
        evidence: of the same runs.
        questions: which.
    """
    answers: dict[Question, Any] = {which: fit_question(rows, evidence, which)[0] for which in questions}
    for which, answer in answers.items():
        if answer["votes"]:
            answer["widening"] = widening_of(rows, evidence, which, answer)
    found, values = rows.apply(label_of, axis=1), values_of(rows)
    known = tuple(SOLUTIONS) if "inferential" in questions else LABELS
    ranges = {
        name: {
            label: [_round(end) for end in values[name][found == label].quantile(MIDDLE)]
            for label in known
            if values[name][found == label].notna().any()
        }
        for name in values.dropna(axis="columns", how="all")
    }
    return {"questions": answers, "ranges": ranges}


def fit_question(rows: Table, evidence: Evidence, which: Question) -> tuple[dict[str, Any], np.ndarray]:
    """Intercept and votes of one question, and the log-odds of every run from a fit without its task.

    The penalty, and how the votes' number becomes log-odds, go by the runs that are asked, each from a fit
    without its task.
    """
    of, yes = asked(rows, which)
    n, n_yes = int(of.sum()), int(yes[of].sum())
    if min(n_yes, n - n_yes) < LEAST_ANSWERS:
        frequent = float(np.log((n_yes + 0.5) / (n - n_yes + 0.5)))
        content = {"n": n, "n_yes": n_yes, "penalty": None, "log_odds": {"offset": 0.0, "slope": 1.0}}
        content |= {"intercept": _round(frequent), "votes": {}, "widening": LEAST_WIDENING}
        return content, np.full(len(yes), frequent)
    values, regression = evidence.values, evidence.regression
    tasks = rows["task"].to_numpy()
    numbers = left_out_numbers(rows, evidence, which, tasks)
    log_odds = {one: left_out_log_odds(regression, found, of, yes, tasks) for one, found in numbers.items()}
    strength = min(STRENGTHS, key=lambda one: loss(log_odds[one][of], yes[of]))
    offset, slope = regression.log_odds(numbers[strength][of], yes[of])
    votes = fit_own_votes(values[of], yes[of], evidence.signs(which))
    says, wanted = said_by_all(votes, values[of]), regressed(rows, evidence, which)[of]
    intercept, weights = regression.weights(says, wanted, strength)
    content = {
        "n": n,
        "n_yes": n_yes,
        "penalty": strength,
        "log_odds": {"offset": _round(offset), "slope": _round(slope)},
        "intercept": _round(offset + slope * intercept),
        "widening": LEAST_WIDENING,
        "votes": {
            name: {**{key: _round(number) for key, number in vote.items()}, "weight": _round(slope * weight)}
            for (name, vote), weight in zip(votes.items(), weights, strict=True)
        },
    }
    return content, log_odds[strength]


def asked(rows: Table, which: Question) -> tuple[np.ndarray, np.ndarray]:
    """Which runs are asked a question, and what each answers (of the others nothing is meant)."""
    of = np.asarray(QUESTIONS[which].of(rows), bool)
    return of, np.asarray(QUESTIONS[which].yes(rows), float)


def regressed(rows: Table, evidence: Evidence, which: Question) -> np.ndarray:
    """The number of each run that weights are fit to; 0 where it is not defined."""
    question = QUESTIONS[which]
    by_accuracy = evidence.regression.of_accuracy and question.accuracy
    return np.nan_to_num(np.asarray(rows[question.accuracy] if by_accuracy else question.yes(rows), float))


def signs_of(readings: Sequence[DirectedReading], which: Question) -> dict[str, int]:
    """Reading -> the direction in which it speaks for yes."""
    return {reading.name: sign for reading in readings if (sign := reading.sign(which))}


def left_out_numbers(
    rows: Table, evidence: Evidence, which: Question, groups: np.ndarray
) -> dict[float, np.ndarray]:
    """Penalty -> the votes' number of every run, from a fit on those that are asked without its group."""
    of, yes = asked(rows, which)
    x, signs = evidence.values, evidence.signs(which)
    wanted = regressed(rows, evidence, which)
    found = {strength: np.zeros(len(yes)) for strength in STRENGTHS}
    for mine, rest in without_each(groups, of, yes):
        votes = fit_own_votes(x[rest], yes[rest], signs)
        says, others_say = said_by_all(votes, x[mine]), said_by_all(votes, x[rest])
        for strength in STRENGTHS:
            intercept, weights = evidence.regression.weights(others_say, wanted[rest], strength)
            found[strength][mine] = intercept + says @ weights
    return found


def left_out_log_odds(
    regression: Regression, numbers: np.ndarray, of: np.ndarray, yes: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Log-odds of yes of every run, by the numbers of the other groups."""
    found = np.zeros(len(yes))
    for mine, rest in without_each(groups, of, yes):
        offset, slope = regression.log_odds(numbers[rest], yes[rest])
        found[mine] = offset + slope * numbers[mine]
    return found


def without_each(
    groups: np.ndarray, of: np.ndarray, yes: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The runs of each group, and those that are asked and of no such group, where these answer both ways."""
    for group in np.unique(groups):
        rest = of & (groups != group)
        if len(np.unique(yes[rest])) == 2:
            yield groups == group, rest


def left_out(rows: Table, evidence: Evidence, questions: Sequence[Question]) -> list[dict[str, float]]:
    """Probabilities of every run from fits without its task; the penalties are those of the whole fit.

    Args:
        rows: of the runs, one each.
        evidence: what the questions are answered by.
        questions: which.
    """
    odds = {which: fit_question(rows, evidence, which)[1] for which in questions}
    found = []
    for k, commutes in enumerate(rows["commutes"]):
        answers: dict[Any, QuestionFit] = {
            which: QuestionFit(float(of[k]), {})
            for which, of in odds.items()
            if which != "commutative" or commutes
        }
        found.append(LogisticModel(answers, {}).probabilities({}))
    return found


def given(row: Column) -> dict[str, float | None]:
    """Reading -> value of a row, None where there is none."""
    return {str(name): None if np.isnan(value) else float(value) for name, value in row.items()}


def widening_of(rows: Table, evidence: Evidence, which: Question, content: Mapping[str, Any]) -> float:
    """What log-odds must be divided by on what is left out of the fit, for the smallest loss; 1.05 at least.

    Left out is every value of each of `BEYOND` in turn.
    """
    of, yes = asked(rows, which)
    log_odds = []
    for name in BEYOND:
        found = left_out_numbers(rows, evidence, which, rows[name].to_numpy())[content["penalty"]]
        log_odds.append(content["log_odds"]["offset"] + content["log_odds"]["slope"] * found[of])
    everything, right = np.concatenate(log_odds), np.tile(yes[of], len(BEYOND))
    best = min(np.geomspace(1, 4, 61), key=lambda t: loss(everything / t, right))
    return max(LEAST_WIDENING, _round(best))


def _round(number: float) -> float:
    return float(f"{number:.5g}")
