"""The map of stable ranks: a bubble's size is the phase, its colour how many directions W_Q uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.figures.picture import Picture
from anchorlens.show.diagram import canvas
from anchorlens.show.diagram.looks import (
    CLEAR,
    EITHER,
    FAILED,
    INK,
    MISSING,
    PHASES,
    UNDECIDED,
    UNDERFIT,
    UNMEASURED,
    Look,
    outcome,
)
from anchorlens.show.diagram.places import FILLED, Layout, Stripe, arranged
from anchorlens.show.diagram.votes import check_measured, mean, measured
from anchorlens.sweep.cells import Cell

RANK = "stable_rank.w_q"
LARGEST = 26
"""Pixels across of the bubble of Phase 3, where there is room."""
IN_LEGEND = 16
"""The same in the legend: plotly.js draws none larger there."""
SYMBOLS = {
    PHASES[0]: ("circle", 0.4),
    PHASES[1]: ("circle", 0.6),
    EITHER: ("circle", 0.7),
    PHASES[2]: ("circle", 0.8),
    PHASES[3]: ("circle", 1.0),
    UNDECIDED: ("diamond", 0.6),
    UNDERFIT: ("x", 0.55),
    FAILED: ("x-thin", 0.5),
    UNMEASURED: ("line-ew", 0.5),
    MISSING: ("circle-open", 0.3),
}
"""What a cell came to -> symbol, and its size in that of Phase 3."""


def rank_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """The stable rank of the first layer's W_Q of every cell, beside its phase.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Returns:
        A figure with one bubble for each cell, seeds side by side: its size is the phase by behaviour, its
        colour the stable rank, from 1 (all neurons share one direction) up; a cross where the model is
        underfit. Written is the mean rank of the place.

    Raises:
        ValueError: no cell, cells that differ in something else, or none with a stable rank.

    Source: the stable rank over gamma and weight decay of arXiv 2501.08537.
    """
    layout = arranged(cells, x, y)
    check_measured(cells, RANK, "stable rank of W_Q", "the probe gave none")
    largest = min(LARGEST, 0.95 * canvas.place_width(layout) * FILLED / layout.most_seeds)
    found: dict[Look, list[Stripe]] = {}
    for stripe in layout.stripes:
        found.setdefault(_look(stripe.cell), []).append(stripe)
    figure = go.Figure()
    for look, (symbol, share) in SYMBOLS.items():
        if look in PHASES or look in found:
            drawn = {"symbol": symbol, "line": {"color": INK, "width": 1}}
            in_legend = {**drawn, "size": share * IN_LEGEND, "color": "#C9CED6"}
            figure.add_scatter(x=[None], y=[None], mode="markers", name=look.name, marker=in_legend)
            marker = {**drawn, "size": share * largest, **_colour(found.get(look, ()))}
            figure.add_trace(_bubbles(layout, found.get(look, ()), marker))
    texts = canvas.written(layout, lambda place: mean(place.cells, RANK, ".3g"), yshift=-20, bgcolor=CLEAR)
    for text in texts:
        text["text"] = text["text"].replace("<br>", ", ")
        text["font"] = {"size": 11}
    figure.update_layout(annotations=texts)
    scale = {"colorscale": "Viridis", "colorbar": {"title": "stable<br>rank"}}
    figure.update_layout(coloraxis=scale)
    return canvas.finished(figure, layout, "Stable rank of W_Q", scale=True)


def _look(cell: Cell) -> Look:
    """What a cell came to, as far as there is a rank to colour it by."""
    look = outcome(cell)
    if look in (FAILED, MISSING) or measured(cell, RANK) is not None:
        return look
    return UNMEASURED


def _colour(stripes: Sequence[Stripe]) -> dict[str, Any]:
    ranks = [measured(stripe.cell, RANK) for stripe in stripes]
    return {"color": ranks, "coloraxis": "coloraxis"} if None not in ranks else {"color": INK}


def _bubbles(layout: Layout, stripes: Sequence[Stripe], marker: dict[str, Any]) -> go.Scatter:
    """One bubble for each stripe, a little above its middle: the mean rank stands below."""
    return go.Scatter(
        x=[stripe.centre for stripe in stripes],
        y=[stripe.bottom + 0.56 * stripe.height for stripe in stripes],
        mode="markers",
        marker=marker,
        showlegend=False,
        **canvas.telling(layout, stripes),
    )
