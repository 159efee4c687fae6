"""Join several figures of one kind side by side into one figure with common scales."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from anchorlens.plots import styled

GUTTER = 0.25
"""The proportion of a column's width that remains free on its right."""
COMMON = ("legend", "showlegend", "coloraxis", "barmode")
"""The parts of the layout that come from the first figure, including numbered parts such as `coloraxis2`."""
_LABEL_HEIGHT, _LINE_HEIGHT = 94, 16
"""The heights above each figure in pixels, for the text of the figure and for each line of its label."""
_CHARACTER_WIDTH = 7.5
"""The average width of a character of a label, in pixels."""


def distinct(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels, with a number before each label if two labels are equal.

    >>> distinct(["ckpt.pt", "ckpt.pt"])
    ('1: ckpt.pt', '2: ckpt.pt')
    """
    if len(set(labels)) == len(labels):
        return tuple(labels)
    return tuple(f"{i + 1}: {label}" for i, label in enumerate(labels))


def side_by_side(
    figures: Sequence[go.Figure], labels: Sequence[str], *, share_axes: bool = True
) -> go.Figure:
    """Join several figures of one kind, in reading order, with one legend and one colour bar.

    Each figure keeps its height and about its width.
    The layout has one row for at most three figures, two columns for four figures, and three columns for more
    figures.

    Args:
        figures: the figures of one kind. The function does not change the figures. Heatmaps without a colour
            range get a common range.
        labels: the text above each figure, in plotly's markup. A text wider than the figure wraps.
        share_axes: whether a numeric axis gets the same range in every figure.
    """
    contents = [figure.to_dict() for figure in figures]
    colours = _range_of_colours(figures)
    first, n = contents[0]["layout"], len(contents)
    n_columns = 2 if n == 4 else min(n, 3)
    n_rows = -(-n // n_columns)
    width, height = (max(content["layout"][side] for content in contents) for side in ("width", "height"))
    total_width = int(width * n_columns * (1 if n_columns < 3 else 0.8))
    lines = [_wrapped(label, total_width / n_columns) for label in labels]
    label_height = _LABEL_HEIGHT + _LINE_HEIGHT * max(map(len, lines))
    header = label_height / (height + label_height)
    joined = go.Figure()
    shapes: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    offset = 0
    for i, content in enumerate(contents):
        traces, layout = content["data"], content["layout"]
        place = _Place(*divmod(i, n_columns), n_rows, n_columns, header, offset)
        offset += sum(name.startswith("xaxis") for name in layout) or 1
        for trace in traces:
            if trace.get("type") == "heatmap" and "coloraxis" not in trace:
                trace = colours | trace
            joined.add_trace(place.trace(trace, legend=i == 0, colour_bar=i == n - 1))
        joined.update_layout(place.axes(layout, _text_axes(traces), share=share_axes and i > 0))
        shapes += place.items(layout.get("shapes", ()))
        annotations += place.items(layout.get("annotations", ()))
        middle = {"x": place.across(0.5), "y": place.up(1), "xref": "paper", "yref": "paper"}
        text = "<br>".join(f"<b>{line}</b>" for line in lines[i])
        label = {"text": text, "showarrow": False, "xanchor": "center", "yanchor": "bottom", "yshift": 24}
        annotations.append(label | middle)
    total = {"width": total_width, "height": height * n_rows + 60}
    joined = styled(joined, first["title"]["text"], **total)
    joined.update_layout(shapes=shapes, annotations=annotations)
    joined.update_layout({key: first[key] for key in first if key.startswith(COMMON)})
    if joined.layout.legend.y is not None:  # keep the legend's distance to the plot in pixels
        joined.update_layout(legend_y=joined.layout.legend.y / n_rows)
    return joined.update_layout(margin={"t": 40, "r": 90}, title={"y": 0.99, "yanchor": "top"})


def _wrapped(label: str, width: float) -> list[str]:
    """Wrap a label to lines that fit into a column of this width in pixels, margins included.

    >>> _wrapped("gamma 0.5, seed 1, step 1,000", 180), _wrapped("a &lt; b", 180)
    (['gamma 0.5, seed 1,', 'step 1,000'], ['a &lt; b'])
    """
    if "<" in label:
        return [label]
    most = max(10, int(width * (1 - GUTTER) / _CHARACTER_WIDTH))
    return [escape(line, quote=False) for line in textwrap.wrap(unescape(label), most)] or [""]


def _text_axes(traces: Sequence[dict[str, Any]]) -> set[str]:
    """Return the axes (`x`, `y2`, ...) with text values, which have no range to share."""
    on_axes = ((trace.get(f"{letter}axis", letter), trace.get(letter)) for trace in traces for letter in "xy")
    return {
        axis
        for axis, values in on_axes
        if isinstance(values, list | tuple | np.ndarray) and any(isinstance(value, str) for value in values)
    }


def _range_of_colours(figures: Sequence[go.Figure]) -> dict[str, float]:
    """Return `zmin` and `zmax` over all heatmaps, or an empty dict without heatmaps."""
    heatmaps: list[Any] = [t for f in figures for t in f.select_traces(selector={"type": "heatmap"})]
    values = [np.asarray(trace.z, dtype=float).ravel() for trace in heatmaps if trace.z is not None]
    together = np.concatenate(values or [np.empty(0)])
    finite = together[np.isfinite(together)]
    return {"zmin": float(finite.min()), "zmax": float(finite.max())} if len(finite) else {}


@dataclass(frozen=True)
class _Place:
    """The position of one figure's axes, shapes and annotations in the joined figure."""

    row: int
    column: int
    n_rows: int
    n_columns: int
    header: float
    """The proportion of a row's height above the figures of the row."""
    offset: int
    """The number of axes of the previous figures."""

    def axis(self, name: str) -> str:
        """Return an axis reference (`x`, `y2`, `xaxis3`, `x domain`) with its number in the joined figure."""
        base, _, rest = name.partition(" ")
        letters = base.rstrip("0123456789")
        number = int(base[len(letters) :] or 1) + self.offset
        return f"{letters}{number if number > 1 else ''}" + (f" {rest}" if rest else "")

    def across(self, share: float) -> float:
        """Convert a horizontal position in the figure, from 0 to 1, to a position in the joined figure."""
        return (self.column + share * (1 - GUTTER)) / self.n_columns

    def up(self, share: float) -> float:
        """Convert a vertical position in the figure, from 0 to 1, to a position in the joined figure."""
        below = self.header if self.n_rows > 1 else 0  # for the title of the axis and the next row's label
        return (self.n_rows - 1 - self.row + below + share * (1 - self.header - below)) / self.n_rows

    def trace(self, trace: dict[str, Any], *, legend: bool, colour_bar: bool) -> dict[str, Any]:
        moved = {**trace, **{key: self.axis(trace.get(key, key[0])) for key in ("xaxis", "yaxis")}}
        if "showscale" in moved or moved.get("type") == "heatmap":
            moved["showscale"] = colour_bar and moved.get("showscale", True) is not False
        marker = moved.get("marker")
        if isinstance(marker, dict) and not colour_bar:
            moved["marker"] = {key: value for key, value in marker.items() if key != "colorbar"}
        # Without names, several traces would make a legend of "trace 0", "trace 1", ...
        moved["showlegend"] = legend and bool(moved.get("name")) and moved.get("showlegend", True)
        return {**moved, "legendgroup": moved["name"]} if moved.get("name") else moved

    def axes(self, layout: dict[str, Any], text_axes: set[str], *, share: bool) -> dict[str, Any]:
        """Move the axes of a layout to the joined figure.

        With `share`, numeric axes get the range of the axes of the first figure.
        """
        axes: dict[str, Any] = {"xaxis": {}, "yaxis": {}}
        axes |= {name: value for name, value in layout.items() if name.startswith(("xaxis", "yaxis"))}
        moved = {}
        for name, axis in axes.items():
            content = dict(axis)
            for key in ("anchor", "scaleanchor", "matches"):
                if isinstance(content.get(key), str) and content[key] != "free":
                    content[key] = self.axis(content[key])
            place = self.across if name.startswith("x") else self.up
            content["domain"] = [place(end) for end in axis.get("domain", (0, 1))]
            content.setdefault("anchor", self.axis("y" if name.startswith("x") else "x"))
            short = name[0] + name[len("xaxis") :]
            is_bound = not {"scaleanchor", "tickvals", "range", "matches"}.isdisjoint(axis)
            is_bound = is_bound or axis.get("type") == "category" or short in text_axes
            is_bound = is_bound or any(other.get("scaleanchor") == short for other in axes.values())
            if share and not is_bound:
                content["matches"] = short
            moved[self.axis(name)] = content
        return moved

    def items(self, items: Any) -> Iterator[dict[str, Any]]:
        """Move shapes or annotations to the joined figure."""
        for item in items:
            moved = {"xref": "x", "yref": "y", **item}
            for letter, place in (("x", self.across), ("y", self.up)):
                ref, keys = f"{letter}ref", (letter, f"{letter}0", f"{letter}1")
                if moved[ref] == "paper":
                    moved |= {key: place(moved[key]) for key in keys if key in moved}
                else:
                    moved[ref] = self.axis(moved[ref])
            yield moved
