"""What the study of holdout found: the truth of each run, bounds from the first half, and how they do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anchorlens.extras.benchmark.result import N_DRAWS, auc_with_interval
from anchorlens.probes.any_model.holdout import LEARNT, MEMORISED
from holdout.kinds import FIRST_HALF

TABLE = Path(__file__).with_name("runs.json")
FIT, CLOSE, LEARNT_FROM, MEMORISED_TO = 0.9, 0.1, 0.9, 0.3
"""Accuracy of a run that counts; how far from chance; and the bounds of the truth."""
MOST_BETWEEN = 0.05
OPENED_WITH = 93
"""Rows of the table, in its order, that there were when the second half was opened."""
Row = Mapping[str, Any]


def rows_of(path: Path = TABLE) -> list[Row]:
    """The rows of the table."""
    found: list[Row] = json.loads(path.read_text("utf-8"))
    return found


def share(row: Row) -> float:
    """Accuracy on fresh sequences relative to the training data, both counted from chance."""
    chance = row["fresh_chance"]
    return float((row["fresh"] - chance) / max(row["train"] - chance, 1e-9))


def truth(row: Row) -> str:
    """What a run is by its behaviour.

    >>> truth({"train": 1.0, "fresh": 0.95, "fresh_chance": 0.1})
    'learnt'
    """
    if row["train"] < FIT or "refused" in row:
        return "not fit"
    if row["train"] - row["fresh_chance"] < CLOSE:
        return "close to chance"
    at = share(row)
    return "learnt" if at >= LEARNT_FROM else "memorised" if at <= MEMORISED_TO else "between"


def decided(rows: Iterable[Row]) -> list[Row]:
    """Runs that memorised or learnt."""
    return [row for row in rows if truth(row) in ("memorised", "learnt")]


def of_half(rows: Iterable[Row], *, first: bool) -> list[Row]:
    """Runs of the kinds that fix the bounds, or of those opened once."""
    return [row for row in rows if (row["kind"] in FIRST_HALF) == first]


def named(row: Row, memorised: float = MEMORISED, learnt: float = LEARNT) -> str | None:
    """What the probe calls a run; None between the bounds or without a ratio.

    >>> named({"holdout_ratio": 0.2}), named({"holdout_ratio": 1.0}), named({"holdout_ratio": None})
    ('memorised', 'learnt', None)
    """
    ratio = row.get("holdout_ratio")
    if ratio is None or memorised < ratio < learnt:
        return None
    return "learnt" if ratio >= learnt else "memorised"


def bounds(rows: Sequence[Row]) -> tuple[float, float]:
    """The bounds that name most runs rightly with at most 5 % between; the mean of equal ones.

    Args:
        rows: of runs that memorised or learnt.
    """
    is_learnt = np.array([truth(row) == "learnt" for row in rows])
    ratio = np.array([np.nan if row.get("holdout_ratio") is None else row["holdout_ratio"] for row in rows])
    grid = np.arange(30, 100) / 100
    found: dict[int, list[tuple[float, float]]] = {}
    for low in grid:
        for high in grid[grid >= low]:
            right = int(((ratio <= low) & ~is_learnt).sum() + ((ratio >= high) & is_learnt).sum())
            between = np.isnan(ratio) | ((ratio > low) & (ratio < high))
            if between.mean() <= max(MOST_BETWEEN, np.isnan(ratio).mean()):
                found.setdefault(right, []).append((low, high))
    low, high = np.mean(found[max(found)], axis=0)
    return round(float(low), 2), round(float(high), 2)


class Score(NamedTuple):
    """How the probe does on runs that memorised or learnt; each with its 95 % interval over tasks."""

    n: int
    auc: tuple[float | None, float | None, float | None]
    right_of_named: tuple[float, float, float]
    between: tuple[float, float, float]


def score(rows: Sequence[Row]) -> Score:
    """The numbers of the aim.

    Args:
        rows: of runs that memorised or learnt.
    """
    with_ratio = [row for row in rows if row.get("holdout_ratio") is not None]
    auc = auc_with_interval(
        np.array([row["holdout_ratio"] for row in with_ratio]),
        np.array([truth(row) == "learnt" for row in with_ratio]),
        [row["task"] for row in with_ratio],
    )
    names = [named(row) for row in rows]
    is_named = np.array([name is not None for name in names])
    is_right = np.array([name == truth(row) for name, row in zip(names, rows, strict=True)])
    tasks = [row["task"] for row in rows]
    return Score(
        len(rows),
        (auc.auc, auc.low, auc.high),
        _over_tasks(tasks, lambda times: (times @ is_right) / (times @ is_named)),
        _over_tasks(tasks, lambda times: (times @ ~is_named) / times.sum(axis=-1)),
    )


def _over_tasks(
    tasks: Sequence[str], measure: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, float, float]:
    names, task = np.unique(tasks, return_inverse=True)
    random = np.random.default_rng(5903)
    times = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=N_DRAWS)
    low, high = np.nanquantile(measure(times[:, task]), [0.025, 0.975])
    return float(measure(np.ones(len(task)))), float(low), float(high)
