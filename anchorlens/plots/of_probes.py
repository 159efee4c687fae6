"""The pictures that several probes draw: cosines, values at every location of a model, and clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from einops import rearrange
from jaxtyping import Float, Int
from plotly.subplots import make_subplots

from anchorlens.plots import CATEGORIES, SHARE, box_cells, cosine_heatmap, styled


def key_cosines(
    keys: Int[np.ndarray, " key"],
    compared: Sequence[Sequence[str]],
    cosines: Float[np.ndarray, "comparison key key"],
    results: Sequence[Sequence[Int[np.ndarray, " key"]]] | Int[np.ndarray, "comparison 2 key"],
    *,
    title: str,
    height: int,
) -> go.Figure:
    """Plot a matrix of cosines for each comparison, with keys as rows and columns.

    Args:
        keys: the keys.
        compared: for each comparison, the anchors after the key of each row and the anchors after the key of
            each column.
        cosines: the cosines, from -1 to 1.
        results: for each comparison, the results of the rows and the results of the columns. A cell with
            equal results has a box.
        title: the title of the figure.
        height: the height of the figure in pixels.
    """
    n = max(1, len(compared))
    names = [str(key) for key in keys]
    figure = make_subplots(rows=1, cols=n, horizontal_spacing=0.34 / n)
    for i, (first, second) in enumerate(compared):
        at: dict[str, Any] = {"row": 1, "col": i + 1}
        heatmap = cosine_heatmap(cosines[i], names, "cosine,<br>centred")
        figure.add_trace(heatmap.update(showscale=i == n - 1), **at)
        box_cells(figure, np.argwhere(np.equal.outer(*results[i])), **at)
        figure.update_xaxes(title=f"key before {second}", type="category", **at)
        figure.update_yaxes(title=f"key before {first}", type="category", autorange="reversed", **at)
    return styled(figure, title, height=height)


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
        if np.isnan(grid).all():
            middle = {"x": (n_pos - 1) / 2, "y": (len(rows) - 1) / 2}
            figure.add_annotation(text=nothing, showarrow=False, **middle, **at)
    columns = [names.get(position, str(position)) for position in range(n_pos)]
    figure.update_xaxes(title="position", tickvals=list(range(n_pos)), ticktext=columns, tickangle=0)
    figure.update_xaxes(tickfont={"size": 10}, range=[-0.5, n_pos - 0.5])
    figure.update_yaxes(tickvals=list(range(0, len(rows), step)), ticktext=rows[::step])
    figure.update_yaxes(tickfont={"size": 10}, range=[-0.5, len(rows) - 0.5])
    figure.update_yaxes(title="layer and site", row=1, col=1)
    figure.update_annotations(font_size=10)  # the subplots' titles
    return styled(figure, title, height=min(1200, 180 + 28 * len(rows)))


def pair_styles(pairs: Sequence[Sequence[int]]) -> Iterator[tuple[str, str, bool, int]]:
    """Yield the style of each pair: its name, its colour, whether it is reversed, and its symbol (0 or 1).

    A pair and its reversed pair have one colour.
    """
    chains = [tuple(map(int, pair)) for pair in pairs]
    groups = list(dict.fromkeys(min(chain, chain[::-1]) for chain in chains))
    for chain in chains:
        turn, number = divmod(groups.index(min(chain, chain[::-1])), len(CATEGORIES))
        yield ",".join(map(str, chain)), CATEGORIES[number], chain > chain[::-1], turn % 2


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
    for label, (name, color, mirror, turn) in enumerate(pair_styles(pairs)):
        symbols = ("diamond-open", "square-open") if mirror else ("circle", "square")
        marker: dict[str, Any] = {"color": color, "size": 7 if mirror else 6, "symbol": symbols[turn]}
        marker["line"] = {"width": 1.5 if mirror else 0, "color": color}
        x, y = points[labels == label].T
        figure.add_scatter(x=x, y=y, mode="markers", name=name, marker=marker)
    figure.update_xaxes(title="t-SNE 1", zeroline=False)
    figure.update_yaxes(title="t-SNE 2", zeroline=False)
    figure.update_layout(legend={"title": {"text": "anchors"}, "itemsizing": "constant"})
    return styled(figure, title, height=520)
