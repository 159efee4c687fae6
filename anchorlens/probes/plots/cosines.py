"""Heatmaps of cosines between keys, between inputs in the order of a result, and between neurons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float
from plotly.subplots import make_subplots

from anchorlens.plots import box_cells, cosine_heatmap, styled


def key_cosines(
    keys: Sequence[str],
    compared: Sequence[Sequence[str]],
    cosines: Float[np.ndarray, "comparison key key"],
    equal: Sequence[Bool[np.ndarray, "key key"]],
    *,
    title: str,
    height: int,
) -> go.Figure:
    """Plot a matrix of cosines for each comparison, with keys as rows and columns.

    Args:
        keys: the names of the keys.
        compared: for each comparison, the anchors after the key of each row and the anchors after the key of
            each column.
        cosines: the cosines, from -1 to 1.
        equal: for each comparison, a boolean mask [key, key] that is true for the cells with a box.
        title: the title of the figure.
        height: the height of the figure in pixels.
    """
    n = max(1, len(compared))
    figure = make_subplots(rows=1, cols=n, horizontal_spacing=0.34 / n)
    for i, (first, second) in enumerate(compared):
        heatmap = cosine_heatmap(cosines[i], keys, "cosine,<br>centred")
        figure.add_trace(heatmap.update(showscale=i == n - 1), row=1, col=i + 1)
        box_cells(figure, np.argwhere(equal[i]), row=1, col=i + 1)
        figure.update_xaxes(title=f"key before {second}", type="category", row=1, col=i + 1)
        figure.update_yaxes(
            title=f"key before {first}", type="category", autorange="reversed", row=1, col=i + 1
        )
    return styled(figure, title, height=height)


def ordered_results(
    results: Sequence[str], cosines: Float[np.ndarray, "input input"], *, inputs: str, title: str
) -> go.Figure:
    """Plot a matrix of cosines between inputs in the order of the single-anchor result g(x; a).

    Args:
        results: the names of the single-anchor results g.
        cosines: the cosines, from -1 to 1. Each g has the same number of inputs. If this number is above 1, a
            box surrounds the inputs of each g.
        inputs: the description of the inputs.
        title: the title of the figure.
    """
    figure = go.Figure(cosine_heatmap(cosines, colorbar="cosine, centred"))
    size = len(cosines) // len(results)  # number of inputs of each g
    starts = size * np.arange(len(results))
    if size > 1:
        box_cells(figure, [(start, start) for start in starts], size=size, width=1)
    shown = range(0, len(results), max(1, len(results) // 8))
    ticks = {"tickvals": [starts[i] + (size - 1) / 2 for i in shown], "ticktext": [results[i] for i in shown]}
    figure.update_xaxes(title=f"g(x; a), {inputs}", constrain="domain", **ticks)
    figure.update_yaxes(title="g(x; a)", constrain="domain", autorange="reversed", scaleanchor="x", **ticks)
    return styled(figure, title, height=540)


def grouped_neurons(cosines: Float[np.ndarray, "neuron neuron"], title: str) -> go.Figure:
    """Plot a matrix of cosines between the neurons of W_Q, group by group.

    Args:
        cosines: the cosines, from -1 to 1.
        title: the title of the figure.
    """
    figure = go.Figure(cosine_heatmap(cosines))
    axis = "neuron of W_Q, grouped"
    figure.update_xaxes(title=axis, constrain="domain")
    figure.update_yaxes(title=axis, constrain="domain", autorange="reversed", scaleanchor="x")
    return styled(figure, title, height=540)
