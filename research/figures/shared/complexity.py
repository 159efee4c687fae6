"""Epochs to a loss against reasoning complexity: what the figures of both papers share.

A run that never reaches the loss is censored: its time is unknown and longer than the run. It is None in the
numbers and an open triangle in the picture, at the length of the run, and never a zero or the run's length.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy import stats

from anchorlens.extras.sweep import Cell
from anchorlens.plots import CATEGORIES, styled
from anchorlens.recipes.schedule import loss_reached

LOSS = 0.05
"""The papers' threshold of the training loss, in nats."""


@dataclass(frozen=True)
class Time:
    """How long one run took to reach the loss."""

    panel: str
    """Subplot that it belongs to."""
    line: str
    """Line of the subplot."""
    complexity: int
    """Reasoning complexity of its task, 0..6."""
    seed: int
    """Seed of the run."""
    epochs: float | None
    """Passes over the training set until the loss is reached; None where it never is (censored)."""
    trained_epochs: float
    """How long the run was: a censored time is longer than that."""


def time_of(cell: Cell, panel: str, line: str, loss: float = LOSS) -> Time:
    """When a run first reached the loss, as the mean of five log lines (`loss_reached`).

    Args:
        cell: with a complexity as its task; it is done.
        panel: see `Time`.
        line: see `Time`.
        loss: in nats.
    """
    assert cell.run.task.complexity is not None
    log, per_epoch = cell.log(), cell.run.train_config.steps_per_epoch
    step = loss_reached(log, loss)
    epochs = None if step is None else step / per_epoch
    trained = log[-1]["step"] / per_epoch
    return Time(panel, line, cell.run.task.complexity, cell.run.train_config.seed, epochs, trained)


def order(times: Sequence[Time]) -> float | None:
    """Kendall's tau of time with complexity, -1..1: 1 = a more complex task always takes longer.

    It counts the pairs of runs of different complexity of which is known which took longer: both reached the
    loss, or one did before the other, censored, had ended. None where there is no such pair.

    >>> runs = [(0, 2.0, 8), (1, 4.0, 8), (2, None, 8), (3, None, 3)]  # complexity, epochs, trained
    >>> order([Time("", "", k, 0, epochs, trained) for k, epochs, trained in runs])  # 0-1, 0-2, 1-2 and 0-3
    1.0
    """
    signs = []
    for a, b in combinations(sorted(times, key=lambda time: time.complexity), 2):
        if a.complexity == b.complexity:
            continue
        if a.epochs is not None and b.epochs is not None:
            signs.append((b.epochs > a.epochs) - (b.epochs < a.epochs))
        elif a.epochs is not None and a.epochs <= b.trained_epochs:
            signs.append(1)
        elif b.epochs is not None and b.epochs <= a.trained_epochs:
            signs.append(-1)
    return statistics.fmean(signs) if signs else None


def median_epochs(times: Sequence[Time]) -> float | None:
    """Median time, a censored one counting as longer than all; None where that leaves it unknown.

    >>> median_epochs([Time("", "", 0, seed, epochs, 9) for seed, epochs in enumerate([2.0, None, 4.0])])
    4.0
    """
    ordered = sorted(time.epochs for time in times if time.epochs is not None)
    middle = {(len(times) - 1) // 2, len(times) // 2}
    if not times or max(middle) >= len(ordered):
        return None
    return statistics.fmean(ordered[i] for i in middle)


class Slope(NamedTuple):
    """How much longer training takes for one more group that breaks the rules."""

    factor: float
    """Epochs at complexity k + 1 over those at k: 1 = as long."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end."""


def slope(times: Sequence[Time]) -> Slope | None:
    """Least squares of log epochs on complexity, each seed with a level of its own; Student's interval.

    None where a run is censored, or where there are too few.

    >>> runs = [Time("", "", k, seed, (1 + seed) * 2.0**k, 99) for k in range(4) for seed in (0, 1)]
    >>> slope(runs).factor
    2.0
    """
    seeds = sorted({time.seed for time in times})
    freedom = len(times) - len(seeds) - 1
    if freedom < 1 or any(time.epochs is None for time in times):
        return None
    levels = [[time.seed == seed for seed in seeds] for time in times]
    design = np.column_stack([[time.complexity for time in times], np.array(levels, dtype=float)])
    target = np.log([time.epochs for time in times if time.epochs is not None])
    found, _, rank, _ = np.linalg.lstsq(design, target)
    if rank < design.shape[1]:  # one complexity alone
        return None
    variance = np.sum((target - design @ found) ** 2) / freedom * np.linalg.inv(design.T @ design)[0, 0]
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    return Slope(*(float(np.exp(value).round(6)) for value in (found[0], found[0] - half, found[0] + half)))


def numbers(times: Sequence[Time]) -> dict[str, Any]:
    """Every run, and for each panel and line what they say.

    `slope` as a factor for one more group, with its 95 % interval; `order` over all seeds and by seed;
    `median_epochs` by complexity; `last_to_first`: the median at the largest complexity over that at the
    smallest, None where one of them is unknown; `n_censored` of `n_runs`.
    """
    content: dict[str, Any] = {"runs": [asdict(time) for time in times], "lines": []}
    for panel, line in dict.fromkeys((time.panel, time.line) for time in times):
        own = [time for time in times if (time.panel, time.line) == (panel, line)]
        medians = {
            k: median_epochs([time for time in own if time.complexity == k])
            for k in sorted({time.complexity for time in own})
        }
        first, last = (medians[k] for k in (min(medians), max(medians)))
        content["lines"].append(
            {
                "panel": panel,
                "line": line,
                "slope": None if (found := slope(own)) is None else found._asdict(),
                "order": order(own),
                "order_by_seed": {
                    seed: order([time for time in own if time.seed == seed])
                    for seed in sorted({time.seed for time in own})
                },
                "median_epochs": medians,
                "last_to_first": None if first is None or last is None else last / first,
                "n_censored": sum(time.epochs is None for time in own),
                "n_runs": len(own),
            }
        )
    return content


def draw(times: Sequence[Time], title: str, loss: float = LOSS) -> go.Figure:
    """Epochs over complexity, a subplot a panel: runs as points, medians as lines, censored runs open.

    Args:
        times: of at least one run.
        title: of the figure.
        loss: that was to be reached, in nats.
    """
    panels = list(dict.fromkeys(time.panel for time in times))
    lines = list(dict.fromkeys(time.line for time in times))
    figure = make_subplots(
        cols=len(panels), shared_yaxes=True, subplot_titles=panels, horizontal_spacing=0.06
    )
    for column, panel in enumerate(panels, start=1):
        for number, line in enumerate(lines):
            own = [time for time in times if (time.panel, time.line) == (panel, line)]
            shift = 0.14 * (number - (len(lines) - 1) / 2)  # so that points of two lines stand side by side
            median, *runs = _traces(own, line, CATEGORIES[number % len(CATEGORIES)], shift)
            figure.add_trace(median.update(showlegend=column == 1), row=1, col=column)
            figure.add_traces(runs, rows=1, cols=column)
        figure.update_xaxes(title="reasoning complexity", dtick=1, row=1, col=column)
    if any(time.epochs is None for time in times):
        marker = {"symbol": "triangle-up-open", "size": 9, "color": "black"}
        name = "not reached: longer than the run, which ended here"
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, row=1, col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title=f"epochs to a loss of {loss:g}", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    figure.update_annotations(font_size=12)
    return styled(figure, title, width=180 + 360 * len(panels), height=430).update_layout(margin_t=80)


def _traces(times: Sequence[Time], line: str, color: str, shift: float) -> list[go.Scatter]:
    """The median and the runs of one line."""
    complexities = sorted({time.complexity for time in times})
    medians = [median_epochs([time for time in times if time.complexity == k]) for k in complexities]
    seeds = sorted({time.seed for time in times})  # a little apart, so that two censored runs are two
    reached = [time for time in times if time.epochs is not None]
    censored = [time for time in times if time.epochs is None]
    x = [k + shift for k in complexities]
    median = go.Scatter(
        x=x,
        y=medians,
        mode="lines+markers",
        line_color=color,
        marker={"symbol": "line-ew-open", "size": 14},
        name=f"{line}: median; points are seeds",
        legendgroup=line,
    )
    runs = [
        go.Scatter(
            x=[time.complexity + shift + 0.03 * seeds.index(time.seed) for time in group],
            y=[getattr(time, height) for time in group],
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": color},
            hovertext=[f"seed {time.seed}" for time in group],
            legendgroup=line,
            showlegend=False,
        )
        for group, height, symbol in (
            (reached, "epochs", "circle"),
            (censored, "trained_epochs", "triangle-up-open"),
        )
    ]
    return [median, *runs]
