"""The figure of expert use: the routing share by kind of input, and the accuracy without each expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from plotly.subplots import make_subplots

from anchorlens.plots import SHARE, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go


def expert_figure(
    title: str,
    kinds: Sequence[str],
    shares: Float[np.ndarray, "layer kind expert"],
    accuracies: Float[np.ndarray, " kind"],
    accuracies_without: Float[np.ndarray, "layer expert kind"],
) -> go.Figure:
    """Draw two heatmaps with a row for each expert, below a row for the accuracy of the whole model.

    Args:
        title: the title of the figure.
        kinds: the names of the kinds of input.
        shares: the routing share of each expert for each kind of input, 0..1.
        accuracies: the accuracy of the whole model on each kind of input, 0..1.
        accuracies_without: the accuracy on each kind of input with each expert ablated, 0..1.
    """
    n_layers, n_kinds, n_experts = shares.shape
    experts = [f"layer {layer}, expert {expert}" for layer, expert in np.ndindex(n_layers, n_experts)]
    names = ["the whole model", *experts]
    by_expert = shares.transpose(0, 2, 1).reshape(-1, n_kinds)  # [layer and expert, kind]
    left_out = accuracies_without.reshape(-1, n_kinds)
    panels = {
        "share of the routing weight": [[None] * n_kinds, *by_expert.tolist()],
        "accuracy without the expert": [accuracies.tolist(), *left_out.tolist()],
    }
    figure = make_subplots(
        rows=1, cols=2, subplot_titles=list(panels), shared_yaxes=True, horizontal_spacing=0.05
    )
    for column, values in enumerate(panels.values(), start=1):
        figure.add_heatmap(
            z=values,
            x=kinds,
            y=names,
            texttemplate="%{z:.2f}",
            colorbar={"title": "0..1", "len": 0.9},
            showscale=column == 2,
            row=1,
            col=column,
            **SHARE,
        )
    figure.update_xaxes(title="kind of input", type="category")
    figure.update_yaxes(type="category", autorange="reversed")
    return styled(figure, title, height=160 + 34 * len(names))
