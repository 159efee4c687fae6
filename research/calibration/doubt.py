"""What verdicts are worth on runs that are fit on, each without its task, with costly probes in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anchorlens.verdict.calibration import LogisticModel, Question, QuestionFit
from anchorlens.verdict.readings import COSTLY, READINGS
from calibration import held_out
from calibration.directions import DirectedReading
from calibration.fit import (
    Evidence,
    asked,
    fit_question,
    left_out_numbers,
    of_trained,
    regressed,
    without_each,
)
from calibration.held_out import Said
from calibration.votes import Table, fit_own_votes, said_by_all


def left_out_without(rows: Table, evidence: Evidence, which: Question, missing: Sequence[str]) -> np.ndarray:
    """Log-odds of yes of every run, from a fit without its task, as if some readings were not taken of it.

    The fit has all readings; the penalty is that of the whole fit.
    """
    content, log_odds = fit_question(rows, evidence, which)
    if content["penalty"] is None:
        return log_odds
    tasks = rows["task"].to_numpy()
    regression, strength = evidence.regression, content["penalty"]
    of, yes = asked(rows, which)
    values, wanted = evidence.values, regressed(rows, evidence, which)
    taken = values.assign(**{name: np.nan for name in missing if name in values})
    numbers = left_out_numbers(rows, evidence, which, tasks)[strength]
    found = np.zeros(len(yes))
    for mine, rest in without_each(tasks, of, yes):
        votes = fit_own_votes(values[rest], yes[rest], evidence.signs(which))
        intercept, weights = regression.weights(said_by_all(votes, values[rest]), wanted[rest], strength)
        offset, slope = regression.log_odds(numbers[rest], yes[rest])
        found[mine] = offset + slope * (intercept + said_by_all(votes, taken[mine]) @ weights)
    return found


def said_in_doubt(
    rows: Table, readings: Sequence[DirectedReading], questions: Sequence[Question], least: float
) -> tuple[list[Said], Mapping[str, int]]:
    """What is said of each run with costly probes while no end is named; and how many runs take each probe.

    Args:
        rows: of the runs that are fit on, of one regime, at their end.
        readings: of the verdict.
        questions: of the regime.
        least: the least probability of the verdict.
    """
    evidence, regime = of_trained(rows, readings), rows["regime"].iloc[0]

    def said(probes: Sequence[str]) -> list[Said]:
        missing = [one.name for one in READINGS if one.measurement in probes]
        odds: dict[Any, np.ndarray] = {
            which: left_out_without(rows, evidence, which, missing) for which in questions
        }
        of_each: list[dict[Any, QuestionFit]] = [
            {
                which: QuestionFit(float(of[k]), {})
                for which, of in odds.items()
                if which != "commutative" or commutes
            }
            for k, commutes in enumerate(rows["commutes"])
        ]
        probabilities = [LogisticModel(of, {}).probabilities({}) for of in of_each]
        return held_out.said_of(rows, probabilities, {regime: least})

    found, taken = said(COSTLY), {}
    for k, probe in enumerate(COSTLY, start=1):
        more = said(COSTLY[k:])
        taken[probe] = sum(not one.is_named for one in found)
        found = [one if one.is_named else other for one, other in zip(found, more, strict=True)]
    return found, taken
