"""Accuracy against the share of models that are named, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from anchorlens.plots import BLUE, styled
from calibration.held_out import Said, selective

FIRST = 20
"""Below so many models the share right jumps, and is not drawn."""


def selective_curve(said: Mapping[str, Sequence[Said]]) -> go.Figure:
    """A line for each verdict, over the runs: the surest are named first."""
    figure = go.Figure()
    for name, some in said.items():
        points = [point for point in selective(some) if point[2] >= FIRST]
        figure.add_scatter(
            x=[share for share, _, _ in points],
            y=[right for _, right, _ in points],
            name=name,
            mode="lines",
            line={"color": BLUE},
        )
    figure.update_xaxes(title="proportion of models that get a verdict", range=[0, 1.01], tickformat=".0%")
    figure.update_yaxes(title="accuracy", tickformat=".0%")
    return styled(figure, "Accuracy of the surest verdicts", height=380)
