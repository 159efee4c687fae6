"""Parts that all maps share: axes, bands with the ids of their cells, legends, colour bars.

A figure is a plain dictionary, as plotly.js reads it, since `plotly.graph_objects` checks thousands of
annotations one by one, which takes most of a page's time. The maps return `Picture`s, which are checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.extras.sweep.diagram.layout import FILLED, Band, Layout, Square
from anchorlens.extras.sweep.diagram.outcomes import CLEAR, INK, Category
from anchorlens.plots import plotly_text, styled

ROW_HEIGHT = 60
"""The distance from one row to the next, in pixels."""
SHORTEST_SCALE = 160
"""The height in pixels for the ticks of a colour bar, which reaches below a single row."""
LEAST_WIDTH = 66
MOST_WIDTH = 130
BAND_WIDTH = 22
"""The smallest and largest distance of columns, and the preferred width of a band, in pixels."""
LEAST_PLOT = 420
"""The smallest width of the plot in pixels, which title and legend need."""
LEGEND_ROW = 20
PAPER = "rgb(255,255,255)"
"""The background colour of the maps; a page replaces this colour."""
TEXT = {"size": 12, "color": "#111111"}
"""The font of the texts in squares: dark on light, also in the dark page."""


def most_seeds(layout: Layout) -> int:
    """Return the largest number of bands in a square."""
    return max(len(square.cells) for square in layout.squares)


def column_width(layout: Layout) -> float:
    """Return the distance from one column to the next, in pixels."""
    wanted = min(MOST_WIDTH, max(LEAST_WIDTH, BAND_WIDTH * most_seeds(layout)))
    return max(wanted, LEAST_PLOT / len(layout.x.values))


def bars(layout: Layout, bands: Sequence[Band], **options: object) -> dict[str, Any]:
    """Make a plotly trace of bands, or of a legend entry alone if there are no bands."""
    if not bands:
        return {"type": "bar", "x": [None], "y": [None], **options}
    return {
        "type": "bar",
        "x": [band.centre for band in bands],
        "y": [FILLED] * len(bands),
        "base": [band.bottom for band in bands],
        "width": [band.width for band in bands],
        **identified(layout, bands),
        **options,
    }


def identified(layout: Layout, bands: Sequence[Band]) -> dict[str, Any]:
    """Return the parts of a trace that describe the run under the pointer and identify a clicked run."""
    return {
        "customdata": [band.cell.id for band in bands],
        "hovertext": [layout.descriptions[band.cell.id] for band in bands],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def category_bars(layout: Layout, bands: Sequence[Band], category: Category) -> dict[str, Any]:
    """Make the bands of a category with its legend entry, or the entry alone if there are no bands."""
    overview = INK if category.colour == CLEAR else PAPER
    marker: dict[str, Any] = {"color": category.colour, "line": {"color": overview, "width": 1}}
    if category.hatch:
        marker["pattern"] = hatch(category, ground=category.colour)
    return bars(layout, bands, name=category.name, marker=marker)


def hatch(category: Category, ground: str | list[str]) -> dict[str, Any]:
    """Return the plotly hatch pattern of a category, with one background colour or a colour for each bar."""
    colours = {"fillmode": "replace", "fgcolor": category.ink, "bgcolor": ground}
    return {"shape": category.hatch, "size": 7, "solidity": 0.3, **colours}


def written(layout: Layout, text: Callable[[Square], str], **options: object) -> list[dict[str, Any]]:
    """Make an annotation for each square whose text is not empty."""
    label = {"showarrow": False, "bgcolor": "rgba(255,255,255,0.86)", "borderpad": 2, "font": TEXT, **options}
    texts = ((square, text(square)) for square in layout.squares)
    return [{"x": square.column, "y": square.row, "text": words, **label} for square, words in texts if words]


def scale_bar(layout: Layout, title: str = "") -> dict[str, Any]:
    """Make a colour bar next to the map, with the top of the bar at the top of the map."""
    length = max(SHORTEST_SCALE, _plot_height(layout))
    return {"title": {"text": title}, "lenmode": "pixels", "len": length, "y": 1, "yanchor": "top"}


def figure(
    layout: Layout, title: str, data: list[dict[str, Any]], *, scale: bool = False, **options: object
) -> dict[str, Any]:
    """Make a map with its axes in the style of all figures.

    Args:
        layout: the positions of the runs.
        title: the title above the map.
        data: the plotly traces.
        scale: whether the map has a colour bar at the right.
        **options: the options of plotly's layout.
    """
    rows = [""] if layout.y is None else [plotly_text(label) for label in layout.y.labels]
    columns = [plotly_text(label) for label in layout.x.labels]
    plot_height, across = _plot_height(layout), round(len(columns) * column_width(layout))
    left = 60 if layout.y is None else 46 + 7 * max(map(len, layout.y.labels))
    right = 110 if scale else 20
    below = 74 + LEGEND_ROW * _legend_rows(data, across)
    shared = _shared_layout()
    vertical = {"title": {"text": plotly_text(layout.y.title)}} if layout.y else {"showticklabels": False}
    layout_options = {
        **shared,
        "title": {**shared["title"], "text": title},
        "width": left + across + right,
        "height": 50 + plot_height + below,
        "margin": {"l": left, "r": right, "t": 50, "b": below},
        "barmode": "overlay",
        "hovermode": "closest",
        "dragmode": False,
        "hoverlabel": {
            "bgcolor": PAPER, "bordercolor": INK, "font": {"color": "#000000"}, "align": "left"
        },
        "legend": {
            "orientation": "h", "x": 0, "y": -58 / plot_height, "yanchor": "top", "itemclick": False,
            "itemdoubleclick": False, "itemsizing": "trace",
        },
        "meta": {"boxes": {band.cell.id: band.box for band in layout.bands}},
        "xaxis": {"title": {"text": plotly_text(layout.x.title)}, **_axis(columns)},
        "yaxis": {**vertical, **_axis(rows)},
        **options,
    }  # fmt: skip
    return {"data": data, "layout": layout_options}


@functools.cache
def _shared_layout() -> dict[str, Any]:
    """Return the template, the fonts and the title of every figure of the package."""
    return styled(go.Figure(), "").to_plotly_json()["layout"]


def _axis(labels: Sequence[str]) -> dict[str, Any]:
    ticks = {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": list(labels), "ticks": ""}
    lines = {"showgrid": False, "zeroline": False, "showline": False, "fixedrange": True}
    return {"range": [-0.5, len(labels) - 0.5], **ticks, **lines}


def _legend_rows(data: Sequence[dict[str, Any]], width: float) -> int:
    """Return the number of lines of a plotly.js legend with columns as wide as the longest name."""
    names = [trace["name"] for trace in data if "name" in trace and trace.get("showlegend", True)]
    columns = max(1, int(width // (60 + 6.5 * max(map(len, names), default=1))))
    return -(-len(names) // columns)


def _plot_height(layout: Layout) -> int:
    return ROW_HEIGHT * (1 if layout.y is None else len(layout.y.labels))
