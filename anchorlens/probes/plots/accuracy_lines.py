"""Plot of the accuracies on held-out and other training data against updates of further training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from anchorlens.plots import styled

_WIDTH = 0.07
"""The width of the bars, relative to the number of updates."""


def accuracy_lines(
    title: str,
    updates: Int[np.ndarray, " measurement"],
    accuracies: Mapping[str, tuple[str, Float[np.ndarray, "measurement copy"]]],
    bars: Mapping[str, tuple[str, float, float]],
) -> go.Figure:
    """Plot accuracies against updates, with a thick line for the mean and a thin line for each copy.

    Bars after the last update show ranges of the final accuracy.

    Args:
        title: the title of the figure.
        updates: the number of updates before each measurement.
        accuracies: a dict from the name of each line to its colour and its accuracies [measurement, copy],
            from 0 to 1.
        bars: a dict from the name of each bar to its colour, lower end and upper end. Each end is between 0
            and 1.
    """
    figure, last = go.Figure(), int(updates[-1])
    for name, (colour, values) in accuracies.items():
        for own in values.T:
            figure.add_scatter(
                x=updates, y=own, mode="lines", line={"color": colour, "width": 1}, opacity=0.4,
                showlegend=False, hoverinfo="skip",
            )  # fmt: skip
        figure.add_scatter(x=updates, y=values.mean(axis=1), name=name, line={"color": colour, "width": 3})
    for name, (colour, low, high) in bars.items():
        figure.add_bar(
            x=[last * (1 + _WIDTH)], y=[high - low], base=[low], width=[last * _WIDTH], name=name,
            marker_color=colour, opacity=0.5,
        )  # fmt: skip
    figure.update_xaxes(title="updates without the training data left out", tickvals=updates)
    figure.update_yaxes(title="accuracy", range=[0, 1.02])
    figure.update_layout(barmode="overlay", legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    return styled(figure, title, height=420)
