"""Several figures of one kind as columns of one figure, on the same scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.figures import styled

GUTTER = 0.2
"""Share of a column that stays free at its right."""


def side_by_side(
    figures: Sequence[go.Figure], labels: Sequence[str], *, share_axes: bool = True
) -> go.Figure:
    """One figure of several that are alike: columns in order, one legend, one colour bar.

    Args:
        figures: of the same kind, so that their colour scales are the same; they are not changed.
        labels: written above each.
        share_axes: whether a numeric axis gets the same range in every column.
    """
    contents = [figure.to_dict() for figure in figures]
    first, n = contents[0]["layout"], len(contents)
    joined = go.Figure()
    shapes: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for i, content in enumerate(contents):
        n_axes = sum(name.startswith("xaxis") for name in content["layout"]) or 1
        move = _Column(i, n, n_axes, share_axes)
        for trace in content["data"]:
            joined.add_trace(move.trace(trace))
        layout = move.layout(content["layout"])
        shapes += layout.pop("shapes")
        annotations += layout.pop("annotations")
        joined.update_layout(layout)
        place = {"x": move.place(0.5), "y": 1, "yshift": 42, "xref": "paper", "yref": "paper"}
        annotations.append({"text": f"<b>{labels[i]}</b>", "showarrow": False, **place})
    width = int(max(content["layout"]["width"] for content in contents) * (1 if n <= 2 else 0.75))
    height = max(content["layout"]["height"] for content in contents) + 30
    joined = styled(joined, first["title"]["text"], width=width * n, height=height)
    joined.update_layout(shapes=shapes, annotations=annotations)
    joined.update_layout({key: first[key] for key in ("legend", "showlegend") if key in first})
    joined.update_layout(margin={"t": 100, "r": 90}, title={"y": 0.98, "yanchor": "top"})
    return joined


class _Column:
    """Where the axes, shapes and annotations of one figure go in a figure of several columns."""

    def __init__(self, index: int, n_columns: int, n_axes: int, share_axes: bool) -> None:
        self.index, self.n, self.n_axes, self.share_axes = index, n_columns, n_axes, share_axes

    def axis(self, name: str) -> str:
        """`x`, `y2`, `xaxis3`, `x domain`... with its number in the joined figure."""
        base, _, rest = name.partition(" ")
        letters = base.rstrip("0123456789")
        number = int(base[len(letters) :] or 1) + self.index * self.n_axes
        return f"{letters}{number if number > 1 else ''}" + (f" {rest}" if rest else "")

    def place(self, share: float) -> float:
        """A horizontal place 0..1 of the figure, within its column."""
        return (self.index + share * (1 - GUTTER)) / self.n

    def trace(self, trace: dict[str, Any]) -> dict[str, Any]:
        moved = {
            **trace,
            "xaxis": self.axis(trace.get("xaxis", "x")),
            "yaxis": self.axis(trace.get("yaxis", "y")),
        }
        last = self.index == self.n - 1
        if "showscale" in moved or moved.get("type") == "heatmap":
            moved["showscale"] = last and moved.get("showscale", True) is not False
        marker = moved.get("marker")
        if isinstance(marker, dict) and "colorbar" in marker and not last:
            moved["marker"] = {key: value for key, value in marker.items() if key != "colorbar"}
        if moved.get("name"):
            moved["legendgroup"] = moved["name"]
            moved["showlegend"] = moved.get("showlegend", True) and self.index == 0
        return moved

    def layout(self, layout: dict[str, Any]) -> dict[str, Any]:
        axes = {name: value for name, value in layout.items() if name.startswith(("xaxis", "yaxis"))}
        axes = axes or {"xaxis": {}, "yaxis": {}}
        content = {name: self._axis_content(name, value, axes.values()) for name, value in axes.items()}
        moved = {self.axis(name): value for name, value in content.items()}
        return {**moved, **{kind: [*self._items(layout.get(kind, ()))] for kind in ("shapes", "annotations")}}

    def _axis_content(self, name: str, axis: dict[str, Any], others: Any) -> dict[str, Any]:
        content = dict(axis)
        for key in ("anchor", "scaleanchor", "matches"):
            if isinstance(content.get(key), str) and content[key] != "free":
                content[key] = self.axis(content[key])
        if name.startswith("xaxis"):
            content["domain"] = [self.place(share) for share in axis.get("domain", (0, 1))]
        content.setdefault("anchor", self.axis("y" if name.startswith("x") else "x"))
        short = name[0] + name[len("xaxis") :]
        bound = {"scaleanchor", "tickvals", "range", "matches"} & axis.keys() or axis.get(
            "type"
        ) == "category"
        bound = bound or any(other.get("scaleanchor") == short for other in others)
        if self.share_axes and self.index and not bound:
            content["matches"] = short
        return content

    def _items(self, items: Any) -> Iterator[dict[str, Any]]:
        for item in items:
            moved = {"xref": "x", "yref": "y", **item}
            for key in ("xref", "yref"):
                if moved[key] != "paper":
                    moved[key] = self.axis(moved[key])
            if moved["xref"] == "paper":
                moved |= {key: self.place(moved[key]) for key in ("x", "x0", "x1") if key in moved}
            yield moved
