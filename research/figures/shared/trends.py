"""How a number of a figure's cells goes with a setting: its trend, and its difference between two values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from shared.numerals import mean_and_interval, number

Row = Mapping[str, Any]


def by_value(rows: Sequence[Row], along: str, name: str) -> dict[Any, list[Any]]:
    """Value of a setting -> a number of each cell that has it.

    >>> by_value([{"gamma": g, "bits": g + s} for s in range(2) for g in (3, 5)], "gamma", "bits")
    {3: [3, 4], 5: [5, 6]}
    """
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(row[along], []).append(row[name])
    return found


def trend(rows: Sequence[Row], along: str, name: str) -> str:
    """Spearman's correlation of a number with a setting over the cells of all seeds, and its two-sided p.

    >>> trend([{"gamma": k, "bits": k * k} for k in range(9)], "gamma", "bits")
    '1.00 (9 runs, p < 0.001)'
    >>> trend([{"gamma": k, "bits": k % 2} for k in range(9)], "gamma", "bits")
    '0.00 (9 runs, p 1.000)'
    """
    found: Any = spearmanr([row[along] for row in rows], [row[name] for row in rows])
    said = "p < 0.001" if found.pvalue < 0.001 else f"p {number(found.pvalue, 3)}"
    return f"{number(found.statistic)} ({len(rows)} runs, {said})"


def correlation(rows: Sequence[Row], along: str, name: str) -> float:
    """Spearman's correlation of a number with another, over the cells of all seeds.

    >>> correlation([{"id": k, "ood": -k} for k in range(4)], "id", "ood")
    -1.0
    """
    found: Any = spearmanr([row[along] for row in rows], [row[name] for row in rows])
    return float(found.statistic)


def least(rows: Sequence[Row], along: str, name: str) -> float:
    """The value of a setting at which the mean of a number is smallest.

    >>> least([{"gamma": g, "bits": (g - 3) ** 2 + s} for g in range(9) for s in range(2)], "gamma", "bits")
    3
    """
    found = by_value(rows, along, name)
    return min(found, key=lambda value: fmean(found[value]))


def difference(
    rows: Sequence[Row], along: str, at: float, beside: float, name: str, digits: int | None = 3
) -> str:
    """Mean over seeds of a number at one value of a setting minus the same seed's at another, 95% interval.

    Raises:
        ValueError: fewer than two seeds have both.

    >>> rows = [{"seed": s, "gamma": g, "bits": s + g / (s + 1)} for s in range(3) for g in (0, 6)]
    >>> difference(rows, "gamma", 6, 0, "bits", 1)  # 6, 3 and 2
    '3.7 [-1.5, 8.8]'
    """
    of = {value: {row["seed"]: row[name] for row in rows if row[along] == value} for value in (at, beside)}
    seeds = sorted(of[at].keys() & of[beside].keys())
    if len(seeds) < 2:
        raise ValueError(f"an interval over seeds needs two of them with {along} {at:g} and {beside:g}")
    return mean_and_interval([of[at][seed] - of[beside][seed] for seed in seeds], digits)
