"""Bars of accuracies: what is left of each group of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from anchorlens.figures import styled

if TYPE_CHECKING:
    import plotly.graph_objects as go


def accuracy_bars(
    title: str,
    groups: Sequence[str],
    accuracies: Mapping[str, tuple[str, Float[np.ndarray, " group"]]],
    axis: str,
) -> go.Figure:
    """Bars side by side for each group.

    Args:
        title: of the figure.
        groups: their names.
        accuracies: what a bar is -> its colour, and its height for each group, 0..1.
        axis: what a group is, in words.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, (colour, values) in accuracies.items():
        figure.add_bar(x=groups, y=values, name=name, marker_color=colour)
    figure.update_xaxes(title=axis, type="category")
    figure.update_yaxes(title="accuracy", range=[0, 1.02])
    figure.update_layout(legend={"orientation": "h", "y": -0.28, "yanchor": "top"})
    return styled(figure, title, height=360)
