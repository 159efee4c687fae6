"""What the figures of the realistic tasks share: gamma x weight decay, when a run fits, complexity."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go

from anchorlens.extras.sweep import Cell, grid
from anchorlens.plots import SHARE, styled
from anchorlens.plots.side_by_side import side_by_side
from anchorlens.recipes.run_config import RunConfig
from shared.common import add_means, trained

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DECAYS = (0.0, 0.01, 0.1, 1.0)
LARGE, SMALL = (0.3, 0.0), (0.7, 0.1)
"""(gamma, weight decay) of the paper's two settings, as we read them: large initial weights without decay,
and small ones with."""
ARMS = {LARGE: "large initial weights, no decay", SMALL: "small initial weights, decay .1"}
KNOWING = 0.95
"""ID accuracy from which on a seed knows what it was trained on, where arms are compared at equal ID."""
FIT = 0.999
"""Train accuracy from which on the training data count as fit."""
COMPLEXITY = (
    "stable_rank.w_q_normalized",
    "q_condensation.mean_abs_cosine",
    "embedding_pca.rank_normalized",
)
"""Readings of weights alone that stand beside accuracy."""

Square = tuple[float, float]
Value = Callable[[dict[str, Any]], float | None]


def add_options(
    parser: argparse.ArgumentParser,
    *,
    steps: int,
    gammas: Sequence[float] = GAMMAS,
    decays: Sequence[float] = DECAYS,
) -> None:
    """The options of a grid over gamma and weight decay."""
    parser.add_argument("--gamma", type=float, nargs="*", default=list(gammas), help="of the grid")
    parser.add_argument("--weight-decay", type=float, nargs="*", default=list(decays), help="of the grid")
    parser.add_argument("--steps", type=int, default=steps, help="optimizer steps of every cell")


def add_arms(parser: argparse.ArgumentParser, *, sizes: Sequence[int], rates: Sequence[float]) -> None:
    """The options of what the paper's two settings alone are trained at."""
    parser.add_argument("--sizes", type=int, nargs="*", default=list(sizes), help="of two settings")
    parser.add_argument(
        "--lr", type=float, nargs="*", default=list(rates), help="further rates, of two settings"
    )


class Rows(NamedTuple):
    """What was measured: every cell, those of the grid, and those of the two settings at the usual rate."""

    every: list[dict[str, Any]]
    grid: list[dict[str, Any]]
    over_size: list[dict[str, Any]]


def asked(
    given: argparse.Namespace,
    preset: Any,
    *,
    n_samples: int,
    sizes: Sequence[int],
    measures: Sequence[str],
    fit: float,
    **fields: Any,
) -> Rows:
    """Train what is missing of a grid and of the paper's two settings, and read it off.

    Args:
        given: the options of `add_options` and `add_arms`; what `--set` says goes before all else.
        preset: a preset of `sweep.grid`.
        n_samples: training examples of the grid and of the two settings at other rates.
        sizes: training examples of the two settings at the usual rate.
        measures: of the task, which stand in a row.
        fit: train accuracy from which on the training data count as fit.
        **fields: that every cell has.
    """
    changed = dict(given.set)
    fields = {"steps": given.steps, "n_checkpoints": 0, "n_samples": n_samples, **fields}

    def runs(lr: Sequence[float] = (), **axes: Sequence[Any]) -> list[RunConfig]:
        every = {**axes, "seed": given.seed, **changed, **({"lr": lr} if lr else {})}
        return grid(preset, every, **{name: value for name, value in fields.items() if name not in every})

    wanted: list[RunConfig] = []
    if given.gamma and given.weight_decay:
        wanted += runs(gamma=given.gamma, weight_decay=given.weight_decay)
    for gamma, decay in ARMS:
        if sizes:
            wanted += runs(gamma=[gamma], weight_decay=[decay], n_samples=sizes)
    usual_rates = {run.train_config.lr for run in wanted}
    if given.lr:
        for gamma, decay in ARMS:
            wanted += runs(gamma=[gamma], weight_decay=[decay], lr=given.lr)
    wanted = list(dict.fromkeys(wanted))
    cells = trained(given, wanted)
    every = [measure(cell, ("n_samples", "lr"), measures, fit) for cell in cells]
    usual = [row for row in every if row["lr"] in usual_rates]
    return Rows(
        every,
        [row for row in usual if row["n_samples"] == n_samples],
        [row for row in usual if (row["gamma"], row["weight_decay"]) in ARMS],
    )


def equal_id(rows: Sequence[dict[str, Any]], least: float = KNOWING) -> list[dict[str, Any]]:
    """Of each gamma the smallest size at which every seed knows the trained kind: size, ID and OOD by seed.

    A gamma that never does has no size.

    >>> cells = [(0.5, 100, 0.9), (0.5, 200, 0.96), (0.7, 100, 0.97), (0.9, 100, 0.2)]
    >>> rows = [{"gamma": g, "n_samples": n, "seed": 0, "id": known, "ood": 0.5} for g, n, known in cells]
    >>> [(found["gamma"], found["n_samples"]) for found in equal_id(rows)]
    [(0.5, 200), (0.7, 100), (0.9, None)]
    """
    found = []
    for gamma in sorted({row["gamma"] for row in rows}):
        own = [row for row in rows if row["gamma"] == gamma]
        sizes = sorted({row["n_samples"] for row in own})
        known = [n for n in sizes if min(row["id"] for row in own if row["n_samples"] == n) >= least]
        chosen = [row for row in own if known and row["n_samples"] == known[0]]
        by_seed = {name: {str(row["seed"]): row[name] for row in chosen} for name in ("id", "ood")}
        found.append({"gamma": gamma, "n_samples": known[0] if known else None, **by_seed})
    return found


def at_fit(cell: Cell, fit: float = FIT) -> dict[str, Any]:
    """The first evaluation at which the training data are fit: step and OOD accuracy, None without one."""
    lines = (line for line in cell.log() if line.get("train_accuracy", 0.0) >= fit)
    line = next(lines, {})
    return {"step": line.get("step"), "ood": line.get("ood_accuracy")}


def measure(
    cell: Cell,
    fields: Sequence[str],
    measures: Sequence[str] = ("train", "id", "ood"),
    fit: float = FIT,
) -> dict[str, Any]:
    """What one cell comes to, at its end and when its training data were fit, and how complex it is."""
    numbers = {name: cell.numbers.get(name) for name in (*measures, "label")}
    own = {name: cell.fields[name] for name in ("gamma", "weight_decay", "seed", *fields)}
    complexity = {name: cell.numbers.get(name) for name in COMPLEXITY if name in cell.numbers}
    return {**own, **numbers, **complexity, "at_fit": at_fit(cell, fit)}


def means(rows: Sequence[dict[str, Any]], value: Value) -> dict[Square, Any]:
    """(gamma, weight decay) -> the mean over the seeds that have the value, and how many have it."""
    found: dict[Square, list[float]] = {}
    for row in rows:
        values = found.setdefault((row["gamma"], row["weight_decay"]), [])
        if (one := value(row)) is not None:
            values.append(one)
    return {square: (fmean(values) if values else None, len(values)) for square, values in found.items()}


def summary(found: Mapping[str, dict[Square, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The same, JSON-ready."""
    return {
        title: [
            {"gamma": gamma, "weight_decay": decay, "mean": value, "n_seeds": n}
            for (gamma, decay), (value, n) in each.items()
        ]
        for title, each in found.items()
    }


def maps(title: str, found: Mapping[str, dict[Square, Any]]) -> go.Figure:
    """Several numbers over gamma and weight decay, side by side."""
    drawn = side_by_side([heatmap(name, each) for name, each in found.items()], list(found))
    return drawn.update_layout(title_text=title)


def heatmap(title: str, found: dict[Square, Any]) -> go.Figure:
    """A number over gamma and weight decay, written in each square."""
    gammas, decays = (sorted({square[axis] for square in found}) for axis in (0, 1))
    values = [[found.get((gamma, decay), (None, 0))[0] for gamma in gammas] for decay in decays]
    texts = [["" if value is None else f"{value:.2f}" for value in row] for row in values]
    figure = go.Figure(
        go.Heatmap(
            x=[f"{gamma:g}" for gamma in gammas],
            y=[f"{decay:g}" for decay in decays],
            z=values,
            text=texts,
            texttemplate="%{text}",
            **SHARE,
        )
    )
    figure.update_xaxes(title="gamma (larger: smaller initial weights)", type="category")
    figure.update_yaxes(title="weight decay", type="category")
    return styled(figure, title)


def against_complexity(rows: Sequence[dict[str, Any]], reading: str = COMPLEXITY[0]) -> go.Figure:
    """OOD accuracy of every cell against a reading of its weights; a ring has not fit its data."""
    there = [row for row in rows if row.get(reading) is not None]
    fit = [(row["train"] or 0.0) >= FIT for row in there]
    figure = go.Figure(
        go.Scatter(
            x=[row[reading] for row in there],
            y=[row["ood"] for row in there],
            mode="markers",
            marker={
                "color": [row["gamma"] for row in there],
                "colorscale": "Viridis",
                "colorbar": {"title": "gamma"},
                "symbol": ["circle" if one else "circle-open" for one in fit],
                "size": 9,
            },
            hovertext=[f"gamma {row['gamma']:g}, weight decay {row['weight_decay']:g}" for row in there],
        )
    )
    figure.update_xaxes(title="stable rank of W_Q / a Gaussian's")
    figure.update_yaxes(title="OOD accuracy", range=[-0.04, 1.04])
    return styled(figure, "OOD accuracy against complexity (rings: training data not fit)")


def over_sizes(
    rows: Sequence[dict[str, Any]], title: str, value: Value, y_title: str, *, share: bool = True
) -> go.Figure:
    """A number of the paper's two settings over training examples: the mean, and a point for each seed."""
    figure = go.Figure()
    for arm, name in ARMS.items():
        points: dict[float, list[float]] = {}
        for row in rows:
            if (row["gamma"], row["weight_decay"]) == arm and (one := value(row)) is not None:
                points.setdefault(row["n_samples"], []).append(one)
        add_means(figure, name, points, dash="dash" if arm == LARGE else "solid")
    sizes = sorted({row["n_samples"] for row in rows})
    figure.update_xaxes(
        title="training examples", type="log", tickvals=sizes, ticktext=[f"{n:,}" for n in sizes]
    )
    figure.update_yaxes(title=y_title, rangemode="tozero", range=[-0.04, 1.04] if share else None)
    figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top"}, showlegend=True)
    return styled(figure, title)
