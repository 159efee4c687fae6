"""How much of each vote counts beside the others: two regressions with non-negative weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Penalties on the squares of the weights that leaving out one seed at a time chooses from."""
CERTAINTY = 10.0
"""`C` of the logistic regression from accuracies to log-odds: it stays finite where a threshold parts the
runs without an error."""


@dataclass(frozen=True)
class Regression:
    """How the votes make one number of each run, and that the log-odds of yes."""

    of_accuracy: bool
    """Whether the number is the accuracy that a question is about, or already log-odds of its answer."""
    weights: Callable[[np.ndarray, np.ndarray, float], tuple[float, np.ndarray]]
    """What the votes say [run, vote], what is regressed [run], and a penalty -> intercept, weights >= 0."""
    log_odds: Callable[[np.ndarray, np.ndarray], tuple[float, float]]
    """The numbers of runs that the fit did not see, and their answers -> offset, slope >= 0."""


def fit_accuracies(says: np.ndarray, accuracies: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """Least squares on the accuracy that a question is about."""
    middle, n = says.mean(axis=0), says.shape[1]
    if n == 0:
        return float(accuracies.mean()), np.zeros(0)
    rows = np.vstack([says - middle, np.sqrt(strength) * np.eye(n)])
    weights, _ = nnls(rows, np.r_[accuracies - accuracies.mean(), np.zeros(n)])
    return float(accuracies.mean() - middle @ weights), weights


def over_threshold(numbers: np.ndarray, yes: np.ndarray) -> tuple[float, float]:
    """Logistic regression on a number: how sure it makes that the accuracy is over its threshold."""
    mean, scale = float(numbers.mean()), float(numbers.std()) or 1.0
    found = LogisticRegression(C=CERTAINTY).fit(((numbers - mean) / scale)[:, None], yes > 0)
    slope = max(0.0, float(found.coef_[0, 0]) / scale)
    return float(found.intercept_[0]) - slope * mean, slope


def fit_answers(says: np.ndarray, yes: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """Logistic regression on the answers."""

    def penalised(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds = parameters[0] + says @ parameters[1:]
        error = expit(log_odds) - yes
        value = total_loss(log_odds, yes) + strength * float((parameters[1:] ** 2).sum()) / 2
        return value, np.r_[error.sum(), says.T @ error + strength * parameters[1:]]

    n = says.shape[1]
    start = np.r_[0.0, np.full(n, 0.5 / max(1, n))]
    found = minimize(penalised, start, jac=True, bounds=[(None, None), *[(0, None)] * n], method="L-BFGS-B").x
    return float(found[0]), found[1:]


def cooled(numbers: np.ndarray, yes: np.ndarray) -> tuple[float, float]:
    """Log-odds divided by a temperature, 1 to 4: that which says most of runs that the fit did not see."""
    calm = min(np.geomspace(1, 4, 61), key=lambda t: loss(numbers / t, yes))
    return 0.0, float(1 / calm)


BY_ACCURACY = Regression(True, fit_accuracies, over_threshold)
"""Regress the accuracy, ask for its threshold afterwards."""
BY_ANSWER = Regression(False, fit_answers, cooled)
"""Logistic regression of the answers."""


def total_loss(log_odds: np.ndarray, yes: np.ndarray) -> float:
    """Negative log-likelihood, in nats."""
    return -float((yes * log_expit(log_odds) + (1 - yes) * log_expit(-log_odds)).sum())


def loss(log_odds: np.ndarray, yes: np.ndarray) -> float:
    """Its mean."""
    return total_loss(log_odds, yes) / len(yes)
