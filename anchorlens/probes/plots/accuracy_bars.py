"""The bar chart of the accuracies of groups of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from anchorlens.plots import styled


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
