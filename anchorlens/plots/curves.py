"""Curves against optimiser steps: accuracies and loss of a run, and readings of probes along a run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.plots import BLUE, GREY, ORANGE, in_words, styled
from anchorlens.tasks.registry import logged_metrics
from anchorlens.tasks.shared.phases import COLOURS

Log = Sequence[Mapping[str, Any]]
"""The log lines, with `step` and the measured values of `loss` and the task's metrics."""

LOSS = COLOURS["Phase 3"]
"""The colour of the loss."""

STYLES = {
    name: {"line": {"color": colour, "dash": dash}, "marker": {"symbol": symbol, "color": colour}}
    for name, colour, dash, symbol in (
        ("train", GREY, "dot", "circle"),
        ("ID", BLUE, "dash", "square"),
        ("OOD", ORANGE, "solid", "diamond"),
    )
}
"""The line style of each metric, by title. The styles can be distinguished without colour."""
MOST_ROWS = 8
ROW_HEIGHT = 190
BELOW = 110
"""The largest number of rows along a run, and the pixels of a row and below the last row."""
_OTHERS = [
    {"line": {"color": colour, "dash": "dashdot"}, "marker": {"symbol": symbol, "color": colour}}
    for colour, symbol in zip(list(COLOURS.values())[:3], ("triangle-up", "cross", "star"), strict=True)
]


def metric_styles(log: Log) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the title and the line style of each metric of a log, by name.

    The result includes train, ID and OOD accuracy even if the log does not have these accuracies. If the log
    has a metric whose unit is not accuracy, the result includes only the metrics of the log.
    """
    names = {name for line in log for name in line}
    metrics = logged_metrics()
    units = {metric.unit for name, metric in metrics.items() if name in names}
    styles = {}
    others = itertools.cycle(_OTHERS)
    for name, metric in metrics.items():
        if name in names or (metric.title in STYLES and units <= {metric.unit}):
            styles[name] = metric.title, STYLES.get(metric.title) or next(others)
    return styles


def thinned(n_points: int, most: int) -> slice:
    """Return a slice of at most `most` evenly spaced points of a line, including the last point.

    >>> list(range(10))[thinned(10, 4)], list(range(10))[thinned(10, 99)] == list(range(10))
    ([0, 3, 6, 9], True)
    """
    every = -(-n_points // most) or 1
    return slice((n_points - 1) % every, None, every)


def training_curve(log: Log) -> go.Figure:
    """Plot the loss and the accuracies against optimiser steps.

    Args:
        log: the log lines of a run. The log may be empty.
    """
    units = {logged_metrics()[name].unit for name in metric_styles(log)}
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    figure.add_traces(training_traces(log))
    span: dict[str, Any] = {"range": [-0.04, 1.04]} if units == {"accuracy"} else {"rangemode": "tozero"}
    figure.update_yaxes(title=", ".join(sorted(units)), **span, row=1, col=1)
    figure.update_yaxes(title="loss", type="log", exponentformat="power", dtick=1, row=2, col=1)
    figure.update_xaxes(title="optimizer step", row=2, col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    return styled(figure, "Training curve", height=480)


def training_traces(log: Log) -> list[dict[str, Any]]:
    """Return the traces of `training_curve`, as dicts for plotly.js."""
    traces = []
    for name, (title, style) in metric_styles(log).items():
        steps, values = measured(log, name)
        line = {"type": "scatter", "x": steps, "y": values, "name": title, "xaxis": "x", "yaxis": "y"}
        traces.append({**line, "mode": "lines+markers" if len(steps) <= 40 else "lines", **style})
    steps, losses = measured(log, "loss")
    loss = {"type": "scatter", "x": steps, "y": losses, "mode": "lines", "name": "loss"}
    return [*traces, {**loss, "line": {"color": LOSS}, "xaxis": "x2", "yaxis": "y2"}]


def measured(log: Log, name: str) -> tuple[list[Any], list[Any]]:
    """Return the steps and values of the log lines that contain the metric `name`."""
    lines = [line for line in log if line.get(name) is not None]
    return [line["step"] for line in lines], [line[name] for line in lines]


def along_figure(readings: Sequence[str], metrics: Sequence[str], rows: Log) -> go.Figure:
    """Draw the figure of `probes.along`, with a row for each reading and one row for all metrics.

    Args:
        readings: the names of readings, such as `stable_rank.w_q`. With several probes, the figure shows the
            first reading of each probe.
        metrics: the names of the metrics.
        rows: the values of the readings and metrics by `step`.
    """
    probes = list(dict.fromkeys(name.partition(".")[0] for name in readings))
    drawn = list(readings)
    if len(probes) > 1:
        drawn = [next(name for name in readings if name.startswith(f"{probe}.")) for probe in probes]
    drawn = drawn[: 1 if len(probes) == 1 and len(drawn) > MOST_ROWS else MOST_ROWS]
    n_rows = len(drawn) + bool(metrics)
    figure = make_subplots(rows=n_rows, cols=1, shared_xaxes=True, vertical_spacing=0.25 / max(n_rows, 2))
    for row, name in enumerate(drawn, 1):
        steps, values = measured(rows, name)
        figure.add_scatter(x=steps, y=values, name=name, line_color=BLUE, showlegend=False, row=row, col=1)
        probe, _, reading = name.partition(".")
        title = reading if len(probes) == 1 else f"{in_words(probe)}:<br>{reading}"
        figure.update_yaxes(title=title, row=row, col=1)
    others = itertools.cycle(_OTHERS)
    for name in metrics:
        steps, values = measured(rows, name)
        style = STYLES.get(name) or STYLES.get(name.upper()) or next(others)
        figure.add_scatter(x=steps, y=values, name=name, showlegend=True, row=n_rows, col=1, **style)
    if metrics:
        figure.update_yaxes(title="answers", row=n_rows, col=1)
    figure.update_xaxes(title="optimizer step", row=n_rows, col=1)
    title = "Along training" if len(probes) != 1 else f"{in_words(probes[0])} along training"
    figure.update_traces(mode="lines+markers" if len(rows) <= 20 else "lines", marker_size=4)
    figure.update_layout(legend={"orientation": "h", "y": -55 / (ROW_HEIGHT * n_rows), "yanchor": "top"})
    return styled(figure, title, height=50 + ROW_HEIGHT * n_rows + BELOW).update_layout(margin_b=BELOW)
