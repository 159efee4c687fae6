"""The figure of `probes.along`, with a row for each reading and a line for each group of runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.plots import CATEGORIES, in_words, styled

MOST_ROWS = 8
ROW_HEIGHT = 190
BELOW = 110
"""The number of pixels below the last row for its axis and the legend."""
_DASHES = {"train": "dot", "id": "dash", "ood": "solid"}
_OTHER_DASHES = ("dashdot", "longdash", "longdashdot")
_IN_WORDS = {
    **{"dot": "dotted", "dash": "dashed", "solid": "solid", "dashdot": "dash-dotted"},
    **{"longdash": "long-dashed", "longdashdot": "long-dash-dotted"},
}


class Point(NamedTuple):
    """The mean, minimum and maximum of a reading or metric at one step, over the seeds with a value."""

    step: int
    mean: float
    least: float
    most: float
    n_seeds: int


def along_figure(
    readings: Sequence[str],
    metrics: Sequence[str],
    over_seeds: Callable[[str], Mapping[str, Sequence[Point]]],
) -> go.Figure:
    """Draw the figure of `probes.along`.

    Args:
        readings: the names of readings, such as `stable_rank.w_q`. With several probes, the figure shows the
            first reading of each probe.
        metrics: the names of the metrics. All metrics share the last row.
        over_seeds: the function from the name of a reading or metric to a dict from groups to points.
    """
    probes = list(dict.fromkeys(name.partition(".")[0] for name in readings))
    drawn = list(readings)
    if len(probes) > 1:
        drawn = [next(name for name in readings if name.startswith(f"{probe}.")) for probe in probes]
    drawn = drawn[:MOST_ROWS]
    n_rows = len(drawn) + bool(metrics)
    figure = make_subplots(rows=n_rows, cols=1, shared_xaxes=True, vertical_spacing=0.25 / max(n_rows, 2))
    groups = list(dict.fromkeys(group for name in (*drawn, *metrics) for group in over_seeds(name)))
    colour_of = {group: CATEGORIES[i % len(CATEGORIES)] for i, group in enumerate(groups)}
    for row, name in enumerate(drawn, 1):
        for group, points in over_seeds(name).items():
            _add(figure, points, group or "the run", colour_of[group], row, in_legend=row == 1)
        probe, _, reading = name.partition(".")
        title = reading if len(probes) == 1 else f"{in_words(probe)}:<br>{reading}"
        figure.update_yaxes(title=title, row=row, col=1)
    others = [metric for metric in metrics if metric not in _DASHES]
    dashes = {**_DASHES, **dict(zip(others, itertools.cycle(_OTHER_DASHES), strict=False))}
    for metric in metrics:
        for group, points in over_seeds(metric).items():
            _add(figure, points, f"{metric}, {group}", colour_of[group], n_rows, dash=dashes[metric])
    lines = ", ".join(f"{name} {_IN_WORDS[dashes[name]]}" for name in metrics)
    if metrics:
        figure.update_yaxes(title="answers", row=n_rows, col=1)
    x_title = f"optimizer step<br><sup>answers: {lines}</sup>" if metrics else "optimizer step"
    figure.update_xaxes(title=x_title, row=n_rows, col=1)
    title = "Along training" if len(probes) != 1 else f"{in_words(probes[0])} along training"
    rows_height = ROW_HEIGHT * n_rows
    figure.update_layout(legend={"orientation": "h", "y": -55 / rows_height, "yanchor": "top"})
    return styled(figure, title, height=50 + rows_height + BELOW).update_layout(margin_b=BELOW)


def _add(
    figure: go.Figure,
    points: Sequence[Point],
    name: str,
    colour: str,
    row: int,
    *,
    dash: str = "solid",
    in_legend: bool = False,
) -> None:
    """Add a line with its band.

    A line with one seed at each step has no band.
    """
    steps = [point.step for point in points]
    shared: dict[str, Any] = {"legendgroup": name, "hoverinfo": "skip", "showlegend": False}
    if any(point.n_seeds > 1 for point in points):
        ends = [point.most for point in points] + [point.least for point in reversed(points)]
        band = go.Scatter(
            x=steps + steps[::-1],
            y=ends,
            fill="toself",
            fillcolor=_pale(colour),
            line={"width": 0},
            **shared,
        )
        figure.add_trace(band, row=row, col=1)
    line = go.Scatter(
        x=steps,
        y=[point.mean for point in points],
        customdata=[point.n_seeds for point in points],
        mode="lines+markers" if len(points) <= 20 else "lines",
        name=name,
        legendgroup=name,
        showlegend=in_legend,
        line={"color": colour, "dash": dash},
        marker={"size": 4},
        hovertemplate="step %{x:,}: %{y:.3g}, %{customdata} seeds<extra>%{fullData.name}</extra>",
    )
    figure.add_trace(line, row=row, col=1)


def _pale(colour: str) -> str:
    """Make a CSS colour of six digits nearly transparent."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
