"""What else could be fit: other models of the same readings, one reading alone, a hyperparameter baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.calibration import Question
from anchorlens.verdict.probe_verdict import NUMBERS
from calibration.fit import BY_PROBES, asked, fit_question, label_of, of_trained, values_of
from calibration.votes import Table
from calibration.weights import BY_ACCURACY, BY_ANSWER, loss

N_FOLDS = 10
SHARING = "gradient_sharing.sharing"
CANDIDATES = {"regression on the accuracy (ours)": BY_ACCURACY, "regression on the answer": BY_ANSWER}
"""Name -> the regression of a fit whose readings may speak in one direction alone; the first was taken."""


def log_odds_of_each(rows: Table, which: Question) -> dict[str, np.ndarray]:
    """Way of fitting -> log-odds of yes of every run that is asked, each from fits without its task.

    Args:
        rows: of one regime, what is fit on.
        which: the question.
    """
    of, _ = asked(rows, which)
    found = {
        name: fit_question(rows, of_trained(rows, BY_PROBES, regression), which)[1][of]
        for name, regression in CANDIDATES.items()
    }
    readings = values_of(rows, BY_PROBES).dropna(axis="columns", how="all")
    for name, (make, x) in _others(rows, readings).items():
        found[name] = _left_out(make, x[of], rows[of], which)
    return found


def _others(rows: Table, readings: Table) -> Mapping[str, tuple[Callable[[], object], Table]]:
    def logistic() -> object:
        return make_pipeline(
            SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(C=0.1)
        )

    return {
        "logistic regression": (logistic, readings),
        "boosted trees": (trees, readings),
        "`gradient_sharing.sharing` alone": (logistic, readings[[SHARING]]),
        "hyperparameter baseline": (trees, hyperparameters(rows)),
    }


def trees() -> HistGradientBoostingClassifier:
    """Boosted trees, small, as the tables here are."""
    return HistGradientBoostingClassifier(max_iter=100, learning_rate=0.05, max_leaf_nodes=8, random_state=0)


def ends_by_hyperparameters(known: Table, asked: Table) -> list[dict[str, float]]:
    """How a run of `reasoning` ends by what it is before it is trained: label -> probability.

    Both forms of Phase 2 are one label. Without it nobody knows what a reading of the trained model adds.

    Args:
        known: runs that are fit on.
        asked: runs whose end is asked for.
    """
    both = pd.concat([known, asked], ignore_index=True)
    numbers, n = hyperparameters(both), len(known)
    ends = [label_of(row) for _, row in known.iterrows()]
    made = trees().fit(numbers[:n], [LABELS[1] if NUMBERS.get(end) == 2 else end for end in ends])
    said = made.predict_proba(numbers[n:])
    return [dict(zip(made.classes_.tolist(), row, strict=True)) for row in said.tolist()]


def hyperparameters(rows: Table) -> Table:
    """What a run is before it is trained, as numbers."""
    names = ["gamma", "weight_decay", "lr", "n_layers", "n_heads", "d_model", "n_samples"]
    names += ["n_anchors", "n_keys", "seq_len", "n_unseen"]
    kinds = pd.get_dummies(rows["kind"]).astype(float)
    return rows[names].join(kinds).assign(postnorm=(rows["variant"] == "postnorm").astype(float))


def _left_out(make: Callable[[], object], x: Table, rows: Table, which: Question) -> np.ndarray:
    """Log-odds of every run from fits without a tenth of the tasks, its own among them."""
    yes = asked(rows, which)[1]
    found, n_tasks = np.zeros(len(rows)), rows["task"].nunique()
    if n_tasks < 2:
        return found
    folds = GroupKFold(min(N_FOLDS, n_tasks))
    for rest, mine in folds.split(x, yes, rows["task"]):
        if len(set(yes[rest])) < 2:
            continue
        made = make().fit(x.iloc[rest], yes[rest])  # pyright: ignore[reportAttributeAccessIssue]
        probability = made.predict_proba(x.iloc[mine])[:, 1].clip(1e-4, 1 - 1e-4)
        found[mine] = np.log(probability / (1 - probability))
    return found


def area(yes: np.ndarray, says: np.ndarray) -> float:
    """Area under the curve; NaN where all answer the same."""
    return float(roc_auc_score(yes, says)) if len(set(yes)) == 2 else float("nan")


def mean_loss(yes: np.ndarray, log_odds: np.ndarray) -> float:
    """Mean negative log-likelihood, in nats."""
    return loss(log_odds, yes)
