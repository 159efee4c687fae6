"""A run's training curve: accuracies and loss against steps, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.figures import BLUE, GREY, ORANGE, styled
from anchorlens.figures.small_curve import LOSS, Log, known

ACCURACIES = {
    "train": {"line": {"color": GREY, "dash": "dot"}, "marker": {"symbol": "circle", "color": GREY}},
    "ID": {"line": {"color": BLUE, "dash": "dash"}, "marker": {"symbol": "square", "color": BLUE}},
    "OOD": {"line": {"color": ORANGE, "dash": "solid"}, "marker": {"symbol": "diamond", "color": ORANGE}},
}
"""Name -> how its line is drawn, told apart without colour too."""


def training_curve(log: Log) -> go.Figure:
    """Loss and accuracies against optimizer steps.

    Args:
        log: of a run; it may be empty.
    """
    figure = two_rows("accuracy", "loss").add_traces(training_traces(log))
    figure.update_yaxes(type="log", exponentformat="none", dtick=1, row=2, col=1)
    figure.update_xaxes(title="optimizer step", row=2, col=1)
    return finished(figure, "Training curve")


def training_traces(log: Log) -> list[dict[str, Any]]:
    """The lines of a training curve, as plotly.js reads them; `training_curve` draws them."""
    traces = [accuracy_line(name, *known(log, f"{name.lower()}_accuracy")) for name in ACCURACIES]
    steps, losses = known(log, "loss")
    loss = {
        "type": "scatter",
        "x": steps,
        "y": losses,
        "mode": "lines",
        "name": "loss",
        "line": {"color": LOSS},
        "xaxis": "x2",
        "yaxis": "y2",
    }
    return [*traces, loss]


def two_rows(above: str, below: str) -> go.Figure:
    """An empty figure of two rows, accuracies above."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    figure.update_yaxes(title=above, range=[-0.04, 1.04], row=1, col=1)
    return figure.update_yaxes(title=below, row=2, col=1)


def accuracy_line(name: str, steps: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """One accuracy in the upper row."""
    mode = "lines+markers" if len(steps) <= 40 else "lines"
    places = {"xaxis": "x", "yaxis": "y"}
    return {
        "type": "scatter",
        "x": steps,
        "y": values,
        "mode": mode,
        "name": name,
        **places,
        **ACCURACIES[name],
    }


def finished(figure: go.Figure, title: str) -> go.Figure:
    """The figure in the house's look, its legend below."""
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    return styled(figure, title, height=480)
