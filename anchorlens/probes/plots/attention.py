"""The attention of every head on one sequence, as a heatmap for each head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from anchorlens.plots import SHARE, styled

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
