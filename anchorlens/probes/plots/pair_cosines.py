"""Heatmaps of cosines between every two pairs of anchors, with a panel for each part of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from plotly.subplots import make_subplots

from anchorlens.plots import box_cells, cosine_heatmap, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
