"""Which expert serves which kind of input: shares above, accuracies without each expert below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from anchorlens.figures import CATEGORIES, GREY, SHARE, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go


def expert_figure(
    title: str,
    kinds: Sequence[str],
    shares: Float[np.ndarray, "layer kind expert"],
    accuracies: Float[np.ndarray, " kind"],
    accuracies_without: Float[np.ndarray, "layer expert kind"],
) -> go.Figure:
    """A heatmap of shares, a row for each expert of each layer, and bars for the same rows.

    Args:
        title: of the figure.
        kinds: of input.
        shares: 0..1.
        accuracies: 0..1, of the whole model.
        accuracies_without: 0..1, with one expert taken out.
    """
    from plotly.subplots import make_subplots

    n_layers, _, n_experts = shares.shape
    experts = [f"layer {layer}, expert {expert}" for layer, expert in np.ndindex(n_layers, n_experts)]
    rows = shares.transpose(0, 2, 1).reshape(len(experts), -1)  # [expert of a layer, kind]
    figure = make_subplots(
        rows=1, cols=2, subplot_titles=("share", "accuracy without it"), horizontal_spacing=0.12
    )
    figure.add_heatmap(
        z=rows, x=kinds, y=experts, texttemplate="%{z:.2f}", showscale=False, row=1, col=1, **SHARE
    )
    for k, kind in enumerate(kinds):
        values = [accuracies[k], *accuracies_without[..., k].flatten()]
        names = ["none taken out", *experts]
        colour = CATEGORIES[k % len(CATEGORIES)]
        figure.add_bar(x=values, y=names, name=kind, orientation="h", marker_color=colour, row=1, col=2)
    figure.add_hline(y=0.5, line={"color": GREY, "width": 1, "dash": "dot"}, row=1, col=2)
    figure.update_xaxes(title="kind of input", type="category", row=1, col=1)
    figure.update_xaxes(title="accuracy", range=[0, 1.02], row=1, col=2)
    figure.update_yaxes(type="category", autorange="reversed", row=1, col=1)
    figure.update_yaxes(type="category", autorange="reversed", showticklabels=True, row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0.5})
    return styled(figure, title, height=140 + 60 * (len(experts) + 1))
