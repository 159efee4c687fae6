"""The plot of the trajectory of a run with its forecasts, which only the report contains."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from anchorlens.plots.training_curve import accuracy_line, finished, metric_styles, two_rows
from anchorlens.tasks.shared.phases import COLOURS, SHORT
from anchorlens.verdict.forecast import TrajectoryPoint

SYMBOLS = ("circle", "square", "diamond", "cross")
"""The marker symbols of the phases."""


def trajectory(points: Sequence[TrajectoryPoint]) -> go.Figure:
    """Plot accuracies and forecast probabilities at the evenly spaced checkpoints of a run."""
    figure = two_rows("accuracy", "probability of the end")
    steps = [f"{point.step:,}" for point in points]
    for title, style in metric_styles([]).values():
        values = [getattr(point, title.lower()) for point in points]
        figure.add_trace(accuracy_line(title, steps, values, style))
    for (label, colour), symbol in zip(COLOURS.items(), SYMBOLS, strict=True):
        figure.add_scatter(
            x=steps,
            y=[None if point.forecast is None else point.forecast.get(label) for point in points],
            mode="lines+markers",
            name=f"ends in Phase {SHORT[label]}",
            line={"color": colour},
            marker={"symbol": symbol, "size": 8},
            row=2,
            col=1,
        )
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=steps)
    figure.update_yaxes(range=[-0.04, 1.04], row=2, col=1)
    figure.update_xaxes(title="optimizer step of the checkpoint", row=2, col=1)
    return finished(figure, "Trajectory and forecast")
