"""What all maps share: axes with true values at even distances, stripes that tell of their cell, legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.figures import styled
from anchorlens.figures.picture import Picture, plotly_text
from anchorlens.show.diagram.looks import CLEAR, INK, Look, told
from anchorlens.show.diagram.places import Layout, Place, Stripe

PLACE_HEIGHT = 60
"""Pixels from one row to the next."""
LEAST_WIDTH, MOST_WIDTH, STRIPE_WIDTH = 66, 130, 22
"""Pixels from one column to the next, and what a stripe should have of it."""
LEAST_PLOT = 420
"""Pixels across, so that title and legend have room."""
LEGEND_ROW = 20
PAPER = "rgb(255,255,255)"
"""What lies around the stripes; a page puts its own ground there."""
TEXT = {"size": 12, "color": "#111111"}
"""Of what is written in places: dark on light in the dark page too."""


def place_width(layout: Layout) -> float:
    """Pixels from one column to the next."""
    wanted = min(MOST_WIDTH, max(LEAST_WIDTH, STRIPE_WIDTH * layout.most_seeds))
    return max(wanted, LEAST_PLOT / len(layout.x.values))


def bars(layout: Layout, stripes: Sequence[Stripe], **options: Any) -> go.Bar:
    """Stripes of one kind; without any, what stands in the legend alone."""
    if not stripes:
        return go.Bar(x=[None], y=[None], **options)
    return go.Bar(
        x=[stripe.centre for stripe in stripes],
        y=[stripe.height for stripe in stripes],
        base=[stripe.bottom for stripe in stripes],
        width=[stripe.width for stripe in stripes],
        **telling(layout, stripes),
        **options,
    )


def telling(layout: Layout, stripes: Sequence[Stripe]) -> dict[str, Any]:
    """What makes points tell of their cell under the pointer, and say which it is when clicked."""
    return {
        "customdata": [stripe.cell.id for stripe in stripes],
        "hovertext": [told(stripe.cell, layout.fields) for stripe in stripes],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def look_bars(layout: Layout, stripes: Sequence[Stripe], look: Look) -> go.Bar:
    """Stripes of one look, with the look in the legend; without stripes the legend alone."""
    outline = INK if look.colour == CLEAR else PAPER
    marker: dict[str, Any] = {"color": look.colour, "line": {"color": outline, "width": 1}}
    if look.hatch:
        marker["pattern"] = hatch(look, ground=look.colour)
    return bars(layout, stripes, name=look.name, marker=marker)


def hatch(look: Look, ground: str | list[str]) -> dict[str, Any]:
    """Plotly's pattern for a look, over one colour or over one for each bar."""
    colours = {"fillmode": "replace", "fgcolor": look.ink, "bgcolor": ground}
    return {"shape": look.hatch, "size": 7, "solidity": 0.3, **colours}


def written(layout: Layout, text: Callable[[Place], str], **options: Any) -> list[dict[str, Any]]:
    """Annotations with what is written in each place; places where it is empty have none."""
    label = {"showarrow": False, "bgcolor": "rgba(255,255,255,0.86)", "borderpad": 2, "font": TEXT, **options}
    texts = ((place, text(place)) for place in layout.places)
    return [{"x": place.column, "y": place.row, "text": words, **label} for place, words in texts if words]


def finished(figure: go.Figure, layout: Layout, title: str, *, scale: bool = False) -> Picture:
    """The figure with its axes, in the house's look.

    Args:
        figure: with its traces and annotations; it is changed.
        layout: what stands where.
        title: above it.
        scale: whether a colour bar stands at its right.
    """
    n_rows = 1 if layout.y is None else len(layout.y.values)
    plot_height = n_rows * PLACE_HEIGHT
    left = 60 if layout.y is None else 46 + 7 * max(map(len, layout.y.labels))
    right = 110 if scale else 20
    across = round(len(layout.x.values) * place_width(layout))
    below = 74 + LEGEND_ROW * _legend_rows(figure, across)
    picture = styled(figure, title, width=left + across + right, height=50 + plot_height + below)
    picture.update_layout(
        margin={"l": left, "r": right, "t": 50, "b": below},
        barmode="overlay",
        hovermode="closest",
        dragmode=False,
        hoverlabel={"bgcolor": PAPER, "bordercolor": INK, "font_color": "#000000", "align": "left"},
        legend={
            "orientation": "h",
            "x": 0,
            "y": -58 / plot_height,
            "yanchor": "top",
            "itemclick": False,
            "itemdoubleclick": False,
            "itemsizing": "trace",
        },
        meta={"boxes": {stripe.cell.id: stripe.box for stripe in layout.stripes}},
    )
    axis = {"showgrid": False, "zeroline": False, "showline": False, "fixedrange": True, "ticks": ""}
    labels = [plotly_text(label) for label in layout.x.labels]
    picture.update_xaxes(
        title=plotly_text(layout.x.title), range=[-0.5, len(labels) - 0.5], **_ticks(labels), **axis
    )
    if layout.y is None:
        picture.update_yaxes(range=[-0.5, 0.5], showticklabels=False, **axis)
        return picture
    labels = [plotly_text(label) for label in layout.y.labels]
    picture.update_yaxes(
        title=plotly_text(layout.y.title), range=[-0.5, len(labels) - 0.5], **_ticks(labels), **axis
    )
    return picture


def _legend_rows(figure: go.Figure, width: float) -> int:
    """Lines that plotly.js needs for a legend of columns as wide as the longest name."""
    traces: Any = figure.data
    names = [trace.name for trace in traces if trace.name and trace.showlegend is not False]
    columns = max(1, int(width // (60 + 6.5 * max(map(len, names), default=1))))
    return -(-len(names) // columns)


def _ticks(labels: Sequence[str]) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": list(labels)}
