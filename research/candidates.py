"""What a further reading adds to a question: AUC from fits without a run's task, before and after.

    python research/candidates.py [--table research/calibration/zoo.parquet]

Only runs that the calibration is fit on are looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from anchorlens.verdict.question_model import Question
from anchorlens.verdict.readings import Reading
from calibration.difficulty import difficulty
from calibration.fit import BY_PROBES, asked, fit_question, of_trained
from calibration.runs import SECOND_FITTED, runs
from calibration.votes import Table
from zoo import TABLE

N_RESAMPLES = 2000
LEAST_GAIN = 0.05
"""Of the AUC, with a 95 % interval above 0, for a reading to enter the fit."""
CANDIDATES = (
    Reading(
        "difficulty", "support", "trained pairs that share an anchor with an unseen one", {"composes": 1}
    ),
    Reading("difficulty", "distance", "tokens from an unseen anchor to the nearest other", {"composes": 1}),
)
"""Readings that might enter; the sign says how a larger value speaks for yes."""


@dataclass(frozen=True)
class Gain:
    """AUC of a question from fits without a run's task, without and with a further reading."""

    before: float
    after: float
    low: float
    """Lower end of the 95 % interval of the difference, tasks drawn."""
    high: float

    @property
    def enters(self) -> bool:
        """Whether the reading enters the fit."""
        return self.after - self.before >= LEAST_GAIN and self.low > 0


def gain(rows: Table, which: Question, added: Sequence[Reading], base: Sequence[Reading] = BY_PROBES) -> Gain:
    """What some readings add to others.

    Args:
        rows: of runs of one regime that are fit on, one each.
        which: the question.
        added: the further readings, all at once.
        base: the readings of the fit without them.
    """
    of, yes = asked(rows, which)
    tasks, answers = rows["task"].to_numpy()[of], yes[of]
    before, after = (
        fit_question(rows, of_trained(rows, readings), which)[1][of] for readings in (base, (*base, *added))
    )
    members = [np.flatnonzero(tasks == task) for task in np.unique(tasks)]
    random, differences = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        some = np.concatenate([members[k] for k in random.integers(0, len(members), len(members))])
        if len(np.unique(answers[some])) == 2:
            differences.append(_auc(answers, after, some) - _auc(answers, before, some))
    low, high = np.quantile(differences, [0.025, 0.975])
    everything = np.arange(len(answers))
    return Gain(_auc(answers, before, everything), _auc(answers, after, everything), float(low), float(high))


def _auc(answers: np.ndarray, log_odds: np.ndarray, some: np.ndarray) -> float:
    return float(roc_auc_score(answers[some], log_odds[some]))


def with_difficulty(rows: Table) -> Table:
    """The rows of a table, with the difficulty of each run's task."""
    planned = runs()
    numbers = {name: difficulty(planned[name].run.task) for name in rows["name"].unique() if name in planned}
    return rows.join(pd.DataFrame([numbers.get(name, {}) for name in rows["name"]], index=rows.index))


def main() -> None:
    """Read the command line, print what each candidate adds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=TABLE)
    table = pd.read_parquet(parser.parse_args().table)
    rows = table[
        table["group"].isin(SECOND_FITTED) & (table["moment"] == 1) & (table["regime"] == "reasoning")
    ]
    rows = with_difficulty(rows.reset_index(drop=True))
    of, _ = asked(rows, "composes")
    print(f"{int(of.sum())} runs of {rows['task'][of].nunique()} tasks")
    for some in (*((one,) for one in CANDIDATES), CANDIDATES):
        found = gain(rows, "composes", some)
        names = ", ".join(one.name for one in some)
        ends = f"[{found.low:+.3f}, {found.high:+.3f}]"
        print(f"{names}: {found.before:.3f} -> {found.after:.3f} {ends}, enters: {found.enters}")


if __name__ == "__main__":
    main()
