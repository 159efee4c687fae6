"""The pictures that are the report's own: a run's training curve, and its trajectory with the forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.figures import BLUE, GREY, ORANGE, styled
from anchorlens.report.words import COLOURS, SHORT
from anchorlens.verdict.forecast import Moment

ACCURACIES = {
    "train": {"line": {"color": GREY, "dash": "dot"}, "marker": {"symbol": "circle", "color": GREY}},
    "ID": {"line": {"color": BLUE, "dash": "dash"}, "marker": {"symbol": "square", "color": BLUE}},
    "OOD": {"line": {"color": ORANGE, "dash": "solid"}, "marker": {"symbol": "diamond", "color": ORANGE}},
}
"""Name -> how its line is drawn, told apart without colour too."""
SYMBOLS = ("circle", "square", "diamond", "cross")
"""Of the phases."""


def training_curve(log: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Loss and accuracies against optimizer steps.

    Args:
        log: lines with `step` and, as far as they were measured, `loss`, `train_accuracy`,
            `id_accuracy`, `ood_accuracy`.
    """
    figure = _two_rows("accuracy", "loss").add_traces(training_traces(log))
    figure.update_yaxes(type="log", exponentformat="none", dtick=1, row=2, col=1)
    figure.update_xaxes(title="optimizer step", row=2, col=1)
    return _finished(figure, "Training curve")


def training_traces(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a training curve, as plotly.js reads them; `training_curve` draws them."""
    traces = []
    for name in ACCURACIES:
        key = f"{name.lower()}_accuracy"
        known = [line for line in log if line.get(key) is not None]
        traces.append(_accuracy_line(name, [line["step"] for line in known], [line[key] for line in known]))
    known = [line for line in log if line.get("loss") is not None]
    loss = {
        "type": "scatter",
        "x": [line["step"] for line in known],
        "y": [line["loss"] for line in known],
        "mode": "lines",
        "name": "loss",
        "line": {"color": COLOURS["Phase 3"]},
        "xaxis": "x2",
        "yaxis": "y2",
    }
    return [*traces, loss]


def trajectory(moments: Sequence[Moment]) -> go.Figure:
    """Accuracies and the forecast's probabilities against the checkpoints of a run, evenly spaced."""
    figure = _two_rows("accuracy", "probability of the end")
    steps = [f"{moment.step:,}" for moment in moments]
    for name in ACCURACIES:
        values = [getattr(moment, name.lower()) for moment in moments]
        figure.add_trace(_accuracy_line(name, steps, values))
    for (label, colour), symbol in zip(COLOURS.items(), SYMBOLS, strict=True):
        figure.add_scatter(
            x=steps,
            y=[None if moment.forecast is None else moment.forecast.get(label) for moment in moments],
            mode="lines+markers",
            name=f"ends in {SHORT[label]}",
            line={"color": colour},
            marker={"symbol": symbol, "size": 8},
            row=2,
            col=1,
        )
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=steps)
    figure.update_yaxes(range=[-0.04, 1.04], row=2, col=1)
    figure.update_xaxes(title="optimizer step of the checkpoint", row=2, col=1)
    return _finished(figure, "Trajectory and forecast")


def _two_rows(above: str, below: str) -> go.Figure:
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    figure.update_yaxes(title=above, range=[-0.04, 1.04], row=1, col=1)
    return figure.update_yaxes(title=below, row=2, col=1)


def _accuracy_line(name: str, steps: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
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


def _finished(figure: go.Figure, title: str) -> go.Figure:
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    return styled(figure, title, height=480)
