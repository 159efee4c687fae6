"""Heatmaps of attention, of cosines, and of values at every location of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from einops import rearrange
from jaxtyping import Bool, Float, Int
from plotly.subplots import make_subplots

from anchorlens.plots import SHARE, box_cells, cosine_heatmap, styled

MOST_DRAWN = 64
"""The largest number of heads in a plot. The plot starts with the heads of the first layer."""


def attention_heatmaps(
    tokens: Sequence[str], attention: Float[np.ndarray, "layer head_index query_pos key_pos"]
) -> go.Figure:
    """Draw a heatmap of the attention for each layer and head.

    Args:
        tokens: the names of the positions.
        attention: the attention after the softmax, from 0 to 1.
    """
    n_layers, n_heads = attention.shape[:2]
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)][:MOST_DRAWN]
    n_columns = min(4, n_heads if n_heads > 1 else 2, len(heads))
    n_rows = -(-len(heads) // n_columns)
    figure = make_subplots(
        rows=n_rows,
        cols=n_columns,
        subplot_titles=[f"layer {layer}, head {head}" for layer, head in heads],
        horizontal_spacing=0.22 / n_columns,
        vertical_spacing=0.32 / n_rows,
    )
    small = n_columns > 2
    places = list(range(len(tokens)))
    for i, (layer, head) in enumerate(heads):
        row, column = i // n_columns + 1, i % n_columns + 1
        values = np.where(np.tri(len(tokens), dtype=bool), attention[layer, head], np.nan)
        heatmap = go.Heatmap(
            z=values, colorbar={"title": "attention", "len": 0.9, "thickness": 14}, showscale=i == 0, **SHARE
        )
        figure.add_trace(heatmap, row=row, col=column)
        ticks = {"tickvals": places, "ticktext": tokens, "tickfont": {"size": 8 if small else 10}}
        figure.update_xaxes(**ticks, row=row, col=column)
        figure.update_yaxes(**ticks, autorange="reversed", row=row, col=column)
        if column == 1:
            figure.update_yaxes(title="from", row=row, col=column)
        if row == n_rows:
            figure.update_xaxes(title="to", row=row, col=column)
    figure.update_annotations(font_size=9 if small else 11)  # the subplots' titles
    height = 120 + n_rows * (260 if n_columns <= 2 else 170)
    return styled(figure, "Attention patterns", height=height)


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


def pair_cosines(
    title: str,
    pairs: Sequence[str],
    parts: Sequence[str],
    cosines: Float[np.ndarray, "part pair pair"],
    relations: Int[np.ndarray, "pair pair"],
) -> go.Figure:
    """Plot a matrix of cosines for each part of a model, with pairs of anchors as rows and columns.

    A box marks two pairs without a common anchor.

    Args:
        title: the title of the figure.
        pairs: the names of the pairs.
        parts: the names of the panels.
        cosines: the cosines, from -1 to 1.
        relations: the integer relations [pair, pair], which are 0 for two pairs without a common anchor.
    """
    n = len(parts)
    figure = make_subplots(rows=1, cols=n, subplot_titles=list(parts), horizontal_spacing=0.22 / n)
    for i, matrix in enumerate(cosines):
        heatmap = cosine_heatmap(matrix, pairs, "cosine")
        figure.add_trace(heatmap.update(showscale=i == n - 1), row=1, col=i + 1)
        box_cells(figure, np.argwhere(relations == 0), width=1, row=1, col=i + 1)
        figure.update_xaxes(title="pair of anchors", type="category", tickangle=-90, row=1, col=i + 1)
        figure.update_yaxes(type="category", autorange="reversed", showticklabels=i == 0, row=1, col=i + 1)
    return styled(figure, title, height=320)


MOST_ROW_NAMES = 40


def place_map(
    title: str,
    panels: Mapping[str, Float[np.ndarray, "site layer pos"]],
    sites: Sequence[str],
    *,
    key_position: int | None,
    chain_length: int,
    colorbar: str = "share",
    scale: Mapping[str, Any] = SHARE,
    nothing: str = "no inputs<br>of this kind",
) -> go.Figure:
    """Plot panels next to each other, with a heatmap in each panel.

    Args:
        title: the title of the figure.
        panels: a dict from the title of each panel to the values [site, layer, pos]. In a panel without
            values, all values are NaN.
        sites: the hook names, in the order of a block.
        key_position: the position of the key token, which the anchors follow, or `None` without key and
            anchors.
        chain_length: the number of anchors.
        colorbar: the title of the colour bar.
        scale: the colour options of plotly's heatmap.
        nothing: the text of a panel without values.
    """
    _, n_layers, n_pos = next(iter(panels.values())).shape
    figure = make_subplots(
        rows=1,
        cols=len(panels),
        subplot_titles=list(panels),
        shared_yaxes=True,
        horizontal_spacing=0.12 / len(panels),
    )
    rows = [f"{layer} {site.removeprefix('hook_')}" for layer in range(n_layers) for site in sites]
    names = {}
    if key_position is not None:
        names = {key_position + i: f"a<sub>{i}</sub>" if i else "x" for i in range(chain_length + 1)}
    names |= {n_pos - 1: "last"} | ({} if n_pos - 2 in names else {n_pos - 2: ""})  # room for its name
    step = max(1, len(rows) // MOST_ROW_NAMES)
    for column, values in enumerate(panels.values(), start=1):
        at: dict[str, Any] = {"row": 1, "col": column}
        grid = rearrange(values, "site layer pos -> (layer site) pos")
        bar = {"title": colorbar, "len": 0.9, "thickness": 14}
        figure.add_trace(go.Heatmap(z=grid, colorbar=bar, showscale=column == len(panels), **scale), **at)
        figure.update_xaxes(
            tickvals=list(range(n_pos)),
            ticktext=[names.get(position, str(position)) for position in range(n_pos)],
            tickangle=0,
            tickfont={"size": 10},
            range=[-0.5, n_pos - 0.5],
            title="position",
            **at,
        )
        figure.update_yaxes(
            tickvals=list(range(0, len(rows), step)),
            ticktext=rows[::step],
            tickfont={"size": 10},
            range=[-0.5, len(rows) - 0.5],
            **at,
        )
        if np.isnan(grid).all():
            middle = {"x": (n_pos - 1) / 2, "y": (len(rows) - 1) / 2}
            figure.add_annotation(text=nothing, showarrow=False, **middle, **at)
    figure.update_yaxes(title="layer and site", row=1, col=1)
    figure.update_annotations(font_size=10)  # the subplots' titles
    return styled(figure, title, height=min(1200, 180 + 28 * len(rows)))
