"""Bars and lines of accuracies, and bars of the weight matrices of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int
from plotly.subplots import make_subplots

from anchorlens.plots import BLUE, COSINE, ORANGE, styled


def accuracy_bars(
    title: str,
    groups: Sequence[str],
    accuracies: Mapping[str, tuple[str, Float[np.ndarray, " group"]]],
    axis: str,
) -> go.Figure:
    """Draw the accuracies on each group of pairs as bars side by side.

    Args:
        title: the title of the figure.
        groups: the names of the groups.
        accuracies: a dict from the name of each bar to its colour and its heights [group], from 0 to 1.
        axis: the title of the axis of groups.
    """
    figure = go.Figure()
    for name, (colour, values) in accuracies.items():
        figure.add_bar(x=groups, y=values, name=name, marker_color=colour)
    figure.update_xaxes(title=axis, type="category")
    figure.update_yaxes(title="accuracy", range=[0, 1.02])
    figure.update_layout(legend={"orientation": "h", "y": -0.28, "yanchor": "top"})
    return styled(figure, title, height=360)


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


def rank_bars(
    names: Sequence[str], values: Float[np.ndarray, " matrix"], gaussian: Float[np.ndarray, " matrix"]
) -> go.Figure:
    """Plot the stable rank of each matrix as a bar, and of a Gaussian matrix as a mark.

    Args:
        names: the names of the matrices.
        values: the stable ranks, at least 1.
        gaussian: the stable ranks of Gaussian matrices of the same shapes.
    """
    figure = go.Figure()
    figure.add_bar(y=names, x=values, orientation="h", name="stable rank", marker_color=BLUE)
    figure.add_scatter(
        y=names,
        x=gaussian,
        mode="markers",
        name="Gaussian of that shape",
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": ORANGE}},
    )
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title="stable rank ||W||_F² / ||W||_2²", rangemode="tozero")
    figure.update_layout(legend={"orientation": "h", "y": -60 / (24 * len(names)), "yanchor": "top"})
    return styled(figure, "Stable rank", height=190 + 24 * len(names))


def movement(
    names: Sequence[str],
    changes: Float[np.ndarray, " matrix"],
    change: float | None,
    kernels: Mapping[str, Float[np.ndarray, "sequence sequence"]],
) -> go.Figure:
    """Plot the relative change of each matrix as a bar, and two kernels below the bars.

    Args:
        names: the names of the matrices.
        changes: the relative change of each matrix, at least 0.
        change: the relative change of all matrices together, which the plot shows as a line, or `None` if the
            change is undefined.
        kernels: a dict from the title of each kernel to the kernel [sequence, sequence]. The dict contains
            two kernels or is empty.
    """
    n = len(names)
    if not kernels:
        figure = make_subplots(rows=1, cols=1)
    else:
        figure = make_subplots(
            rows=2,
            cols=2,
            specs=[[{"colspan": 2}, None], [{}, {}]],
            row_heights=[0.62, 0.38],
            vertical_spacing=0.14,
            horizontal_spacing=0.16,
            subplot_titles=("", *kernels),
        )
    figure.add_bar(y=names, x=changes, orientation="h", marker_color=BLUE, showlegend=False, row=1, col=1)
    line = {"color": ORANGE, "width": 3}
    if change is not None:
        figure.add_shape(type="line", x0=change, x1=change, y0=-0.5, y1=n - 0.5, line=line, row=1, col=1)
    figure.update_xaxes(title="||W - W<sub>0</sub>|| / ||W<sub>0</sub>|| (line: all)", row=1, col=1)
    figure.update_xaxes(rangemode="tozero", row=1, col=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    for column, kernel in enumerate(kernels.values(), start=1):
        values = kernel / max(np.abs(kernel).max(), np.finfo(float).tiny)
        bar = {"title": "share of<br>its largest", "len": 0.36, "y": 0.17, "thickness": 14}
        heatmap = go.Heatmap(z=values, colorbar=bar, showscale=column == 2, **COSINE)
        figure.add_trace(heatmap, row=2, col=column)
        figure.update_xaxes(title="sequence", constrain="domain", row=2, col=column)
        figure.update_yaxes(
            autorange="reversed", scaleanchor=f"x{column + 1}", constrain="domain", row=2, col=column
        )
    if kernels:
        figure.update_yaxes(title="sequence", row=2, col=1)
    figure.update_annotations(font_size=12)  # the subplots' titles
    height = (420 if kernels else 190) + 22 * n
    return styled(figure, "Movement since the start of training", height=height)
