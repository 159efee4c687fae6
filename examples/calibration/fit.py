"""The fit: each reading's log-odds by itself, then non-negative weights, question by question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from anchorlens.tasks.shared.phases import (
    COMMUTATIVITY_THRESHOLD,
    FIT_THRESHOLD,
    ID_THRESHOLD,
    LABELS,
    OOD_THRESHOLD,
)
from anchorlens.verdict.questions import Answer, Question, QuestionModel, answered_now
from anchorlens.verdict.readings import COSTLY, READINGS, Reading

STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""Penalties on the squares of the weights that leaving out one seed at a time chooses from."""
RIDGE = 0.3
"""Penalty on the square of a reading's own slope, per standard deviation."""
TAILS = (0.01, 0.99)
"""Quantiles beyond which a reading says no more."""
MIDDLE = (0.1, 0.9)
"""Quantiles of the ranges that are shown."""
LEAST_VALUES = 8
"""A reading with fewer values has no vote."""
LEAST_SLOPE = 1e-3
"""Nats per standard deviation; a reading that says less, or the contrary of what it should, has no vote."""
MOST_TURNS = 50

Table = Any
"""A pandas DataFrame; its types would need stubs."""
Column = Any
"""A column of one."""
BY_DECODING = tuple(READINGS)
BY_PROBES = tuple(reading for reading in READINGS if reading.sees != "unseen pairs")
EARLY = tuple(reading for reading in READINGS if reading.measurement not in COSTLY)


@dataclass(frozen=True)
class Asked:
    """A question of the fit: of which runs it is asked, and what each answers, by definition."""

    of: Callable[[Table], Any]
    yes: Callable[[Table], Any]


def _has_phase(rows: Table) -> Any:
    return rows["label"].isin(LABELS)


def _fits(rows: Table) -> Any:
    return rows["train"] >= FIT_THRESHOLD


QUESTIONS: Mapping[Question, Asked] = {
    "comes to a phase": Asked(lambda rows: rows["train"].notna(), _has_phase),
    "generalises": Asked(_fits, lambda rows: rows["id"] >= ID_THRESHOLD),
    "composes": Asked(
        lambda rows: _fits(rows) & (rows["id"] >= ID_THRESHOLD), lambda rows: rows["ood"] > OOD_THRESHOLD
    ),
    "commutative": Asked(
        lambda rows: _fits(rows) & (rows["id"] >= ID_THRESHOLD) & (rows["ood"] <= OOD_THRESHOLD),
        lambda rows: rows["commutativity"] >= COMMUTATIVITY_THRESHOLD,
    ),
}
"""Every question, in the order in which they are asked."""
OF_A_TRAINED_MODEL: tuple[Question, ...] = ("generalises", "composes", "commutative")


def values_of(rows: Table, readings: Sequence[Reading] = READINGS) -> Table:
    """The readings of some runs from the zoo's numbers: a row for each, NaN where there is none."""
    found = {}
    for reading in readings:
        column = f"{reading.measurement}.{reading.field}"
        numbers = rows[column] if column in rows else pd.Series(np.nan, rows.index)
        widths = rows["d_model"]
        found[reading.name] = [
            reading.of(None if np.isnan(number) else float(number), SimpleNamespace(d_model=width))
            for number, width in zip(numbers, widths, strict=True)
        ]
    return pd.DataFrame(found, index=rows.index, dtype=float)


def now_of(rows: Table) -> Table:
    """What the behaviour of runs answers at their moment: a row for each, NaN where it answers nothing."""
    return pd.DataFrame([answered_now(label) for label in rows["now"]], index=rows.index, dtype=float)


@dataclass(frozen=True)
class Evidence:
    """What a fit of some runs may go by."""

    values: Table
    """A row for each run, a column for each reading."""
    signs: Callable[[Question], Mapping[str, int]]
    """Question -> reading -> the direction in which it speaks for yes, 0 for either, as the data say."""


def of_trained(rows: Table, readings: Sequence[Reading]) -> Evidence:
    """Readings of trained models; each may speak in its own direction alone."""
    return Evidence(values_of(rows, readings), lambda which: signs_of(readings, which))


def of_early(rows: Table, *, inside_alone: bool = False) -> Evidence:
    """Readings of models on their way, and the phase that each has then.

    What a reading means of a trained model it need not mean of one on its way, so each may speak for or
    against every answer.
    """
    inside = values_of(rows, EARLY)
    values = inside if inside_alone else inside.join(now_of(rows))
    return Evidence(values, lambda which: dict.fromkeys(values, 0))


def fit(
    rows: Table, evidence: Evidence, questions: Sequence[Question] = OF_A_TRAINED_MODEL
) -> dict[str, Any]:
    """A model of some questions, as JSON data.

    Args:
        rows: of the runs it is fit on, one each.
        evidence: of the same runs.
        questions: which.
    """
    values = evidence.values
    answers = {which: fit_question(rows, evidence, which)[0] for which in questions}
    labels = {label: rows["label"] == label for label in LABELS}
    ranges = {
        name: {
            label: [_round(end) for end in values[name][of].quantile(MIDDLE)]
            for label, of in labels.items()
            if values[name][of].notna().any()
        }
        for name in values
    }
    return {"questions": answers, "ranges": ranges}


def fit_question(rows: Table, evidence: Evidence, which: Question) -> tuple[dict[str, Any], np.ndarray]:
    """Intercept and votes of one question, and the log-odds of every run from a fit without its seed.

    Penalty and temperature are chosen by the runs that are asked, each from a fit without its seed.
    """
    of, yes = asked(rows, which)
    values, signs = evidence.values, evidence.signs(which)
    left_out = left_out_log_odds(values, of, yes, rows["seed"].to_numpy(), signs)
    strength = min(STRENGTHS, key=lambda one: loss(left_out[one][of], yes[of]))
    chosen = left_out[strength]
    calm = min(np.geomspace(1, 4, 61), key=lambda t: loss(chosen[of] / t, yes[of]))
    votes = fit_own_votes(values[of], yes[of], signs)
    intercept, weights = fit_weights(values[of], yes[of], votes, strength)
    content = {
        "n": int(of.sum()),
        "n_yes": int(yes[of].sum()),
        "penalty": strength,
        "temperature": _round(calm),
        "intercept": _round(intercept / calm),
        "votes": {
            name: {**{key: _round(number) for key, number in vote.items()}, "weight": _round(weight / calm)}
            for (name, vote), weight in zip(votes.items(), weights, strict=True)
        },
    }
    return content, chosen / calm


def asked(rows: Table, which: Question) -> tuple[np.ndarray, np.ndarray]:
    """Which runs are asked a question, and what each answers (of the others nothing is meant)."""
    of = np.asarray(QUESTIONS[which].of(rows), bool)
    return of, np.asarray(QUESTIONS[which].yes(rows), float)


def signs_of(readings: Sequence[Reading], which: Question) -> dict[str, int]:
    """Reading -> the direction in which it speaks for yes."""
    return {reading.name: reading.says[which] for reading in readings if which in reading.says}


def fit_own_votes(x: Table, yes: np.ndarray, signs: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What every reading says by itself; without those that say nothing."""
    return {name: vote for name, sign in signs.items() if (vote := fit_vote(x[name], yes, sign))}


def fit_weights(
    x: Table, yes: np.ndarray, votes: Mapping[str, Mapping[str, float]], strength: float
) -> tuple[float, np.ndarray]:
    """Intercept and non-negative weights of the votes together."""
    says = said_by_all(votes, x)

    def penalised(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds = parameters[0] + says @ parameters[1:]
        error = expit(log_odds) - yes
        value = total_loss(log_odds, yes) + strength * float((parameters[1:] ** 2).sum()) / 2
        return value, np.r_[error.sum(), says.T @ error + strength * parameters[1:]]

    start = np.r_[0.0, np.full(len(votes), 0.5 / max(1, len(votes)))]
    bounds = [(None, None), *[(0, None)] * len(votes)]
    found = minimize(penalised, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return float(found[0]), found[1:]


def fit_vote(values: Column, yes: np.ndarray, sign: int) -> dict[str, float] | None:
    """Logistic regression on one reading whose slope has a given sign; None where it says nothing.

    A sign of 0 takes what the data say.
    """
    if sign == 0:
        found = [fit_vote(values, yes, one) for one in (1, -1)]
        return found[0] or found[1]
    there = values.notna().to_numpy()
    value, answer = values.to_numpy()[there], yes[there]
    if len(value) < LEAST_VALUES or len(np.unique(answer)) < 2:
        return None
    low, high = np.quantile(value, TAILS)
    value = np.clip(value, low, high)
    mean, scale = value.mean(), value.std()
    if scale == 0:
        return None
    z = sign * (value - mean) / scale

    slope, offset = 0.0, 0.0
    for _ in range(MOST_TURNS):  # Newton's method on two parameters
        probability = expit(offset + slope * z)
        error, spread = probability - answer, probability * (1 - probability)
        gradient = np.array([error @ z + RIDGE * slope, error.sum()])
        bend = np.array([[spread @ z**2 + RIDGE, spread @ z], [spread @ z, spread.sum() + 1e-9]])
        step = np.linalg.solve(bend, gradient)
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-8:
            break
    if slope < LEAST_SLOPE:
        return None
    prior = np.log(answer.mean() / (1 - answer.mean()))
    neutral = mean - sign * scale * (offset - prior) / slope
    return {
        "slope": float(sign * slope / scale),
        "neutral": float(neutral),
        "low": float(low),
        "high": float(high),
    }


def said(vote: Mapping[str, float], values: Column) -> np.ndarray:
    """What a vote says of each value."""
    inside = values.clip(vote["low"], vote["high"])
    return (vote["slope"] * (inside - vote["neutral"])).fillna(0.0).to_numpy()


def said_by_all(votes: Mapping[str, Mapping[str, float]], x: Table) -> np.ndarray:
    """[run, vote] What every vote says of every run."""
    return np.column_stack([np.zeros((len(x), 0)), *(said(vote, x[name]) for name, vote in votes.items())])


def log_odds_of(x: Table, answer: Mapping[str, Any]) -> np.ndarray:
    """Log-odds of yes of each run, by what `fit_question` gave."""
    weights = np.array([vote["weight"] for vote in answer["votes"].values()])
    return answer["intercept"] + said_by_all(answer["votes"], x) @ weights


def left_out_log_odds(
    x: Table, of: np.ndarray, yes: np.ndarray, groups: np.ndarray, signs: Mapping[str, int]
) -> dict[float, np.ndarray]:
    """Penalty -> log-odds of every run, from a fit on those that are asked without its group."""
    found = {strength: np.zeros(len(yes)) for strength in STRENGTHS}
    for group in np.unique(groups):
        mine, rest = groups == group, of & (groups != group)
        if len(np.unique(yes[rest])) < 2:
            continue  # nothing can be learnt without this group
        votes = fit_own_votes(x[rest], yes[rest], signs)
        says = said_by_all(votes, x[mine])
        for strength in STRENGTHS:
            intercept, weights = fit_weights(x[rest], yes[rest], votes, strength)
            found[strength][mine] = intercept + says @ weights
    return found


def total_loss(log_odds: np.ndarray, yes: np.ndarray) -> float:
    """Negative log-likelihood, in nats."""
    return -float((yes * log_expit(log_odds) + (1 - yes) * log_expit(-log_odds)).sum())


def loss(log_odds: np.ndarray, yes: np.ndarray) -> float:
    """Its mean."""
    return total_loss(log_odds, yes) / len(yes)


def left_out(
    rows: Table, evidence: Evidence, questions: Sequence[Question] = OF_A_TRAINED_MODEL
) -> list[dict[str, float]]:
    """Probabilities of every run from fits without its seed; the penalties are those of the whole fit."""
    odds = {which: fit_question(rows, evidence, which)[1] for which in questions}
    found = []
    for k in range(len(rows)):
        answers: dict[Any, Answer] = {which: Answer(float(of[k]), {}) for which, of in odds.items()}
        found.append(QuestionModel(answers, {}).probabilities({}))
    return found


def given(row: Column) -> dict[str, float | None]:
    """Reading -> value of a row, None where there is none."""
    return {str(name): None if np.isnan(value) else float(value) for name, value in row.items()}


def widening_of(rows: Table, readings: Sequence[Reading]) -> float:
    """What log-odds must be divided by on shapes left out of the fit, for the smallest loss; 1.05 at least.

    Left out are each width, each depth and each variant in turn.
    """
    evidence = of_trained(rows, readings)
    log_odds, answers = [], []
    for which in OF_A_TRAINED_MODEL:
        of, yes = asked(rows, which)
        content, _ = fit_question(rows, evidence, which)
        for name in ("d_model", "n_layers", "variant"):
            shapes = rows[name].to_numpy()
            found = left_out_log_odds(evidence.values, of, yes, shapes, evidence.signs(which))
            log_odds.append(found[content["penalty"]][of] / content["temperature"])
            answers.append(yes[of])
    everything, right = np.concatenate(log_odds), np.concatenate(answers)
    best = min(np.geomspace(1, 4, 61), key=lambda t: loss(everything / t, right))
    return max(1.05, _round(best))


def _round(number: float) -> float:
    return float(f"{number:.5g}")
