"""Points in two dimensions: the sequences of anchor pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from anchorlens.plots import CATEGORIES, styled


def cluster_figure(
    points: Float[np.ndarray, "sequence 2"],
    labels: Int[np.ndarray, " sequence"],
    pairs: Sequence[Sequence[int]],
    title: str,
) -> go.Figure:
    """Plot a pair as filled circles, and the reversed pair as open diamonds of the same colour.

    The plot has eight colours. After eight pairs of different colours, the plot repeats the colours with
    filled and open squares.
    """
    figure = go.Figure()
    chains = [tuple(map(int, pair)) for pair in pairs]
    groups = list(dict.fromkeys(min(chain, chain[::-1]) for chain in chains))
    for label, chain in enumerate(chains):
        turn, number = divmod(groups.index(min(chain, chain[::-1])), len(CATEGORIES))
        color = CATEGORIES[number]
        mirror = chain > chain[::-1]
        symbols = ("diamond-open", "square-open") if mirror else ("circle", "square")
        figure.add_scatter(
            x=points[labels == label, 0],
            y=points[labels == label, 1],
            mode="markers",
            name=",".join(map(str, chain)),
            marker={
                "color": color,
                "size": 7 if mirror else 6,
                "symbol": symbols[turn % 2],
                "line": {"width": 1.5 if mirror else 0, "color": color},
            },
        )
    figure.update_xaxes(title="t-SNE 1", zeroline=False)
    figure.update_yaxes(title="t-SNE 2", zeroline=False)
    figure.update_layout(legend={"title": {"text": "anchors"}, "itemsizing": "constant"})
    return styled(figure, title, height=520)
