"""What further readings add to the questions, from fits without a run's task, before and after.

    python research/candidates.py [--table research/calibration/second_zoo.parquet]

Only runs that the calibration is fit on are looked at. The rules stand in `research/calibration/README.md`,
under *The second zoo*. A table without the readings of the second zoo has the task's difficulty alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from anchorlens.probes.two_anchor.survival import DOSES
from anchorlens.tasks.shared.phases import OOD_THRESHOLD
from anchorlens.verdict.calibration import Question
from calibration.difficulty import difficulty
from calibration.directions import DirectedReading
from calibration.fit import BY_PROBES, asked, fit_question, of_trained, survival_at
from calibration.runs import FITTED, runs
from calibration.votes import Table
from zoo import TABLE

N_RESAMPLES = 2000
LEAST_GAIN = 0.05
"""Of the AUC, with a 95 % interval above 0, for a reading to enter the fit."""
MOST_LOST = 0.01
"""Of the AUC of `generalises`, for the relative margin and holdout to replace the margin."""
LEAST_UPDATES = (0, 80, 120, 160, 200, 280)
"""Mean updates until the other pairs are back, from which no larger dose of `survival` is taken."""
NEARLY_BEST = 0.01
"""Of the AUC: of numbers of updates within it of the best, the smallest is taken."""
NEARLY_FIT = (0.90, 0.98)
"""Train accuracies of models that may compose and have a small margin."""
MARGIN = "information_flow.margin"
FIRST_DIRECTIONS = {
    MARGIN: {"generalises": 1},
    "gradient_sharing.sharing": {"composes": 1},
    "gradient_sharing.mlp_sharing": {"composes": 1},
    "gradient_sharing.attention_sharing": {"composes": 1},
    "gradient_sharing.order_blindness": {"composes": -1},
}
"""Directions that readings had in the first fit, and have no more."""
KNOWN = tuple(
    replace(one, directions={**one.directions, **FIRST_DIRECTIONS.get(one.name, {})})
    for one in BY_PROBES
    if one.measurement not in ("holdout", "survival") and not one.over_training
)
"""The readings of the first fit."""
GRADIENTS = tuple(one for one in KNOWN if one.measurement == "gradient_sharing")
WITHOUT_GRADIENTS = tuple(one for one in KNOWN if one not in GRADIENTS)
SURVIVAL = DirectedReading(
    "survival", "survival", "accuracy of pairs left out of training", directions={"composes": 1}
)
DIFFICULTY = (
    DirectedReading(
        "difficulty",
        "support",
        "trained pairs that share an anchor with an unseen one",
        directions={"composes": 1},
    ),
    DirectedReading(
        "difficulty",
        "distance",
        "tokens from an unseen anchor to the nearest other",
        directions={"composes": 1},
    ),
)
CANDIDATES = (SURVIVAL, *DIFFICULTY, *GRADIENTS)
"""Readings that might enter *composes*; the sign says how a larger value speaks for yes."""
MARGINS = (
    DirectedReading(
        "relative",
        "margin",
        "margin on fresh sequences over training sequences",
        directions={"generalises": 1},
    ),
    DirectedReading(
        "holdout", "holdout_ratio", "accuracy of training data left out", directions={"generalises": 1}
    ),
)
"""What might replace the margin in *generalises*."""


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


def gain(
    rows: Table, which: Question, added: Sequence[DirectedReading], base: Sequence[DirectedReading] = KNOWN
) -> Gain:
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


def auc_within_tasks(rows: Table, which: Question, values: pd.Series) -> float:
    """Mean over the tasks with both answers of the AUC of one reading, of the runs that have it."""
    of, yes = asked(rows, which)
    there = of & values.notna().to_numpy()
    tasks = rows["task"].to_numpy()
    each = [
        _auc(yes, values.to_numpy(), some)
        for task in np.unique(tasks[there])
        if len(np.unique(yes[some := np.flatnonzero(there & (tasks == task))])) == 2
    ]
    return float(np.mean(each)) if each else float("nan")


def chosen_updates(rows: Table) -> tuple[int, dict[int, float]]:
    """The number of updates that decides the dose of `survival`, and the AUC of each that was tried."""
    found = {least: auc_within_tasks(rows, "composes", survival_at(rows, least)) for least in LEAST_UPDATES}
    best = max(found.values())
    return min(least for least, auc in found.items() if auc >= best - NEARLY_BEST), found


def entering(
    rows: Table, which: Question, added: Sequence[DirectedReading], base: Sequence[DirectedReading]
) -> Iterator[tuple[DirectedReading, Gain]]:
    """The readings that enter a question one by one, the largest gain first, then the best that does not."""
    base, left = tuple(base), [one for one in added if one.name in rows]
    while left:
        gains = [gain(rows, which, (one,), base) for one in left]
        found = max(gains, key=lambda one: one.after)
        best = left.pop(gains.index(found))
        yield best, found
        if not found.enters:
            break
        base = (*base, best)


@dataclass(frozen=True)
class Margins:
    """What the relative margin and holdout make of *generalises*, against the margin."""

    before: float
    """AUC of 1 against the rest from fits without a run's task."""
    after: float
    wrong_before: int
    """Composing runs of train .90 to .98 that are named Phase 1."""
    wrong_after: int
    n: int
    """Such runs."""

    @property
    def enter(self) -> bool:
        """Whether they replace the margin."""
        return self.after >= self.before - MOST_LOST and self.wrong_after < self.wrong_before


def margins(rows: Table, base: Sequence[DirectedReading] = KNOWN) -> Margins:
    """Compare *generalises* by the margin with that by the relative margin and holdout."""
    of, yes = asked(rows, "generalises")
    other = (*(one for one in base if one.name != MARGIN), *MARGINS)
    odds = [fit_question(rows, of_trained(rows, some), "generalises")[1] for some in (base, other)]
    some = np.flatnonzero(of)
    low, high = NEARLY_FIT
    nearly = of & yes.astype(bool) & (rows["ood"] > OOD_THRESHOLD) & rows["train"].between(low, high)
    before, after = (_auc(yes, one, some) for one in odds)
    wrong_before, wrong_after = (int((one[nearly] < 0).sum()) for one in odds)
    return Margins(before, after, wrong_before, wrong_after, int(nearly.sum()))


def main() -> None:
    """Read the command line, print what each candidate adds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=TABLE)
    table = pd.read_parquet(parser.parse_args().table)
    rows = table[table["group"].isin(FITTED) & (table["moment"] == 1) & (table["regime"] == "reasoning")]
    rows = with_difficulty(rows.reset_index(drop=True))
    of, _ = asked(rows, "composes")
    print(f"{int(of.sum())} runs of {rows['task'][of].nunique()} tasks")
    base = KNOWN
    if f"survival at {DOSES[0]:g}.survival" in rows:
        base = WITHOUT_GRADIENTS
        least, aucs = chosen_updates(rows)
        print("updates:", ", ".join(f"{tried}: AUC {auc:.3f}" for tried, auc in aucs.items()), "->", least)
        rows["survival.survival"] = survival_at(rows, least)
        rows["relative.margin"] = rows["fresh.margin"] / rows["training.margin"].where(
            rows["training.margin"] > 0
        )
        print(margins(rows))
    for one, found in entering(rows, "composes", [one for one in CANDIDATES if one not in base], base):
        ends = f"[{found.low:+.3f}, {found.high:+.3f}]"
        print(f"{one.name}: {found.before:.3f} -> {found.after:.3f} {ends}, enters: {found.enters}")


if __name__ == "__main__":
    main()
