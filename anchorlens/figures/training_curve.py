"""A run's training curve: accuracies and loss against steps, as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.figures import BLUE, GREY, ORANGE, styled
from anchorlens.tasks.phases import COLOURS

Log = Sequence[Mapping[str, Any]]
"""Lines with `step` and, as far as they were measured, `loss`, `train_accuracy`, `id_accuracy` and
`ood_accuracy`."""

LOSS = COLOURS["Phase 3"]
"""Colour of the loss."""

ACCURACIES = {
    name: {"line": {"color": colour, "dash": dash}, "marker": {"symbol": symbol, "color": colour}}
    for name, colour, dash, symbol in (
        ("train", GREY, "dot", "circle"),
        ("ID", BLUE, "dash", "square"),
        ("OOD", ORANGE, "solid", "diamond"),
    )
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
    loss = {"type": "scatter", "x": steps, "y": losses, "mode": "lines", "name": "loss"}
    return [*traces, {**loss, "line": {"color": LOSS}, "xaxis": "x2", "yaxis": "y2"}]


def known(log: Log, name: str) -> tuple[list[Any], list[Any]]:
    """Steps and values where something was measured."""
    lines = [line for line in log if line.get(name) is not None]
    return [line["step"] for line in lines], [line[name] for line in lines]


def two_rows(above: str, below: str) -> go.Figure:
    """An empty figure of two rows, accuracies above."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    figure.update_yaxes(title=above, range=[-0.04, 1.04], row=1, col=1)
    return figure.update_yaxes(title=below, row=2, col=1)


def accuracy_line(name: str, steps: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """One accuracy in the upper row."""
    line = {"type": "scatter", "x": steps, "y": values, "name": name, "xaxis": "x", "yaxis": "y"}
    return {**line, "mode": "lines+markers" if len(steps) <= 40 else "lines", **ACCURACIES[name]}


def finished(figure: go.Figure, title: str) -> go.Figure:
    """The figure in the house style, its legend below."""
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    return styled(figure, title, height=480)
