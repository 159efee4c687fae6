"""Points in two dimensions: the sequences of anchor pairs, and the embeddings of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int
from plotly.subplots import make_subplots

from anchorlens.plots import BLUE, CATEGORIES, GREY, ORANGE, styled


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


ARROWS = (ORANGE, CATEGORIES[2])
"""The colours of the two steps."""
MOST_WRITTEN = 1000
"""The largest number of tokens that the plot writes as text. Above this number, the plot draws points."""


def embedding_picture(
    tokens: Int[np.ndarray, " token"],
    points: Float[np.ndarray, "token 2"],
    explained: Float[np.ndarray, 2],
    spectrum: Float[np.ndarray, " axis"],
    lags: Int[np.ndarray, " lag"],
    cosines: Float[np.ndarray, " lag"],
    *,
    marked: Collection[int],
    steps: Sequence[int],
    token_set: str,
    title: str,
) -> go.Figure:
    """Plot the tokens as points, the spectrum of the embedding, and the mean cosine against the lag.

    Args:
        tokens: the ids of the tokens.
        points: the coordinates of the tokens, divided by the square root of the total variance.
        explained: the proportion of the variance along each axis, from 0 to 1.
        spectrum: the eigenvalues of the covariance, largest first.
        lags: the differences between two tokens.
        cosines: the mean cosine of two tokens at each lag.
        marked: the lags that the plot draws in orange.
        steps: the differences of tokens that the plot draws as arrows, at most two. An arrow goes from each
            token to the token one step further.
        token_set: the description of the tokens.
        title: the title of the figure.
    """
    arrows = ", ".join(f"+{step} {colour}" for step, colour in zip(steps, ("orange", "green"), strict=False))
    titles = (f"arrows {arrows}" if arrows else token_set, "covariance", "order")
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"rowspan": 2}, {}], [None, {}]],
        column_widths=[0.62, 0.38],
        horizontal_spacing=0.16,
        vertical_spacing=0.34,
        subplot_titles=titles,
    )
    for step, colour in zip(steps, ARROWS, strict=False):
        figure.add_scatter(**_arrows(points, step, colour), row=1, col=1)
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="text" if len(tokens) <= MOST_WRITTEN else "markers",
        text=[str(token) for token in tokens],
        textfont={"size": 10, "color": BLUE},
        marker={"size": 3, "color": BLUE},
        row=1,
        col=1,
    )
    figure.update_xaxes(title=f"first axis ({explained[0]:.0%})", row=1, col=1)
    figure.update_yaxes(title=f"second axis ({explained[1]:.0%})", row=1, col=1)
    figure.add_scatter(
        x=np.arange(1, len(spectrum) + 1), y=spectrum / spectrum.sum(), line={"color": BLUE}, row=1, col=2
    )
    figure.update_xaxes(title="rank", row=1, col=2)
    figure.update_yaxes(title="variance", type="log", exponentformat="power", row=1, col=2)
    colors = [ORANGE if lag in marked else GREY for lag in lags]
    figure.add_bar(x=lags, y=cosines, marker_color=colors, row=2, col=2)
    figure.update_xaxes(title="difference of two tokens", dtick=2, row=2, col=2)
    figure.update_yaxes(title="mean cosine", row=2, col=2)
    figure.update_layout(showlegend=False)
    figure.update_annotations(font_size=12)  # the subplots' titles
    return styled(figure, title)


def _arrows(points: Float[np.ndarray, "token 2"], step: int, colour: str) -> dict[str, Any]:
    """Return arrows from each token to the token `step` further, as one plotly line with gaps."""
    gap = np.full_like(points[step:], np.nan)
    ends = np.stack([points[:-step], points[step:], gap], axis=1).reshape(-1, 2)
    marker = {"symbol": "arrow", "angleref": "previous", "size": np.tile([0, 7, 0], len(gap)), "opacity": 0.6}
    marker["color"] = colour
    line = {"mode": "lines+markers", "opacity": 0.35, "line": {"width": 1, "color": colour}}
    return {"x": ends[:, 0], "y": ends[:, 1], "marker": marker, "hoverinfo": "skip", **line}
