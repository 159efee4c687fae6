"""What each reading says by itself: log-odds of yes, from a logistic regression on its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

RIDGE = 0.3
"""Penalty on the square of a reading's own slope, per standard deviation."""
TAILS = (0.01, 0.99)
"""Quantiles beyond which a reading says no more."""
LEAST_VALUES = 8
"""A reading with fewer values has no vote."""
LEAST_SLOPE = 1e-3
"""Nats per standard deviation; a reading that says less, or the contrary of what it should, has no vote."""
MOST_TURNS = 50

Table = Any
"""A pandas DataFrame; its types would need stubs."""
Column = Any
"""A column of one."""


def fit_own_votes(x: Table, yes: np.ndarray, signs: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What every reading says by itself; without those that say nothing."""
    return {name: vote for name, sign in signs.items() if (vote := fit_vote(x[name], yes, sign))}


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
