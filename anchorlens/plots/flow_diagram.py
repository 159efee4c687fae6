"""The diagram of information flow, with layers as rows of tokens and attention as lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.colors import sample_colorscale

from anchorlens.plots import BLUE, EFFECT, GREY, NO_EFFECT, ORANGE, styled

MOST_LINES = 400
"""The largest number of lines in one diagram. The diagram prefers lines with large effects and attention."""
_LEAST_WEIGHT = 0.01


def flow_diagram(
    labels: Sequence[str],
    key_and_anchors: range,
    attention: Float[np.ndarray, "layer query_pos key_pos"],
    effects: Float[np.ndarray, "layer query_pos key_pos"] | None,
    *,
    answer: str,
    title: str,
    cut: str,
    note: str = "",
) -> go.Figure:
    """Plot the attention on one sequence, and the effects of the attention edges.

    Args:
        labels: the labels of the tokens.
        key_and_anchors: the positions of the key and of the anchors after the key.
        attention: the attention, from 0 to 1, which determines the width of each line.
        effects: for each edge, the fraction of the margin that is lost without the edge, from -1 to 1. The
            effect determines the colour of the line.
        answer: the model's answer, as text.
        title: the title of the figure.
        cut: the title of the colour bar.
        note: a note to show in the figure.
    """
    n_layers, n_pos = attention.shape[:2]
    figure = go.Figure()
    effect = np.zeros_like(attention) if effects is None else np.clip(effects, -1, 1)
    for layer, query, key in drawn_edges(attention, effect):
        share, weight = effect[layer, query, key], attention[layer, query, key]
        color = NO_EFFECT if effects is None else sample_colorscale(EFFECT["colorscale"], (share + 1) / 2)[0]
        hover = (
            f"layer {layer}: {labels[key]} (position {key}) to {labels[query]} (position {query})"
            f"<br>attention {weight:.2f}"
        )
        figure.add_scatter(
            x=[key, (key + query) / 2, query],
            y=[layer, layer + 0.5, layer + 1],
            mode="lines",
            line={"color": color, "width": 0.75 + 6 * float(weight)},
            opacity=0.95 if abs(share) > 0.1 or effects is None else 0.55,
            hovertext=hover if effects is None else f"{hover}, effect {share:+.2f}",
            hoverinfo="text",
            showlegend=False,
        )
    _draw_tokens(figure, labels, key_and_anchors, n_layers)
    if effects is not None:
        bar = {"title": {"text": cut}, "len": 0.75, "thickness": 14}
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"color": [0], "colorbar": bar, **EFFECT},
            showlegend=False,
        )
    figure.add_annotation(
        x=n_pos - 0.6, y=n_layers, text=f"<b>answer {answer}</b>", xanchor="right", yshift=28, showarrow=False
    )
    if note:
        figure.add_annotation(x=-0.4, y=n_layers, text=note, xanchor="left", yshift=44, showarrow=False)
    figure.update_xaxes(title="position", dtick=1, range=[-0.6, n_pos - 0.4], showline=False, zeroline=False)
    rows = ["tokens"] + [f"after layer {layer}" for layer in range(n_layers)]
    figure.update_yaxes(
        tickvals=list(range(n_layers + 1)), ticktext=rows, range=[-0.35, n_layers + 0.6], showline=False
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.2 / max(1, n_layers / 2), "yanchor": "top"})
    return styled(figure, title, height=min(1600, 220 + 120 * n_layers))


def _draw_tokens(figure: go.Figure, labels: Sequence[str], key_and_anchors: range, n_layers: int) -> None:
    """Draw the tokens below the first layer and after each layer, coloured as key, anchors and noise."""
    key, *anchors = key_and_anchors
    for positions, name, color in (
        ([p for p in range(len(labels)) if p not in key_and_anchors], "noise", GREY),
        ([key], "key", ORANGE),
        (anchors, "anchors", BLUE),
    ):
        places = [(position, level) for level in range(n_layers + 1) for position in positions]
        figure.add_scatter(
            x=[position for position, _ in places],
            y=[level for _, level in places],
            mode="markers+text",
            text=[labels[position] for position, _ in places],
            textfont={"size": 11, "color": "black" if name == "noise" else "white"},
            marker={"size": 22, "color": "#E8E8E8" if name == "noise" else color},
            name=name,
            hoverinfo="skip",
        )


def drawn_edges(
    attention: Float[np.ndarray, "layer query_pos key_pos"],
    effect: Float[np.ndarray, "layer query_pos key_pos"],
) -> list[tuple[int, int, int]]:
    """Return (layer, query, key) of each edge to draw, in ascending order of the absolute effect."""
    weight = np.maximum(np.abs(effect), attention / 2)
    order = np.argsort(np.abs(effect), axis=None, kind="stable")
    heaviest = np.argsort(-weight, axis=None, kind="stable")[:MOST_LINES]
    there = set(heaviest[weight.flat[heaviest] >= _LEAST_WEIGHT].tolist())
    shown = [i for i in order.tolist() if i in there]
    layer, query, key = np.unravel_index(np.array(shown, dtype=np.int64), attention.shape)
    return list(zip(layer.tolist(), query.tolist(), key.tolist(), strict=True))
