"""What the pictures of probes share: one style, colour-blind-safe scales, sizes for print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import templates

from anchorlens.figures.picture import Picture
from anchorlens.files.writing import PICTURES, atomic_write, check_can_write
from anchorlens.safe import safe_text
from anchorlens.views import page

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
"""Okabe and Ito's blue and vermilion, and a grey for what is context."""

CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5195")
"""Okabe and Ito's colours, told apart by the colour-blind too (and one more that is dark and violet)."""

COSINE = {"colorscale": "RdBu_r", "zmin": -1, "zmax": 1}
"""The scale of every cosine and of recovered shares, so that pictures of different checkpoints compare: blue
-1, white 0, red 1."""

SHARE = {"colorscale": "Blues", "zmin": 0, "zmax": 1}
"""The scale of what lies between 0 (white) and 1 (dark blue), attention for one."""

NO_EFFECT = "#D9D9D9"
"""The grey of what has no causal effect, the middle of `EFFECT`."""

EFFECT = {"colorscale": [[0, "#0072B2"], [0.5, NO_EFFECT], [1, "#D55E00"]], "cmin": -1, "cmax": 1}
"""The scale of causal effects: grey = none, vermilion = the answer is lost, blue = it gets better."""


WIDTH, HEIGHT = 600, 450
"""Pixels of a picture that does not say otherwise."""


def styled(figure: go.Figure, title: str, *, width: int = WIDTH, height: int = HEIGHT) -> Picture:
    """The figure in the house style: white, 12 point, readable at 600 pixels; notebooks show it offline."""
    layout: dict[str, Any] = {
        "template": "simple_white",
        "title": {"text": title, "font": {"size": 14}},
        "font": {"size": 12},
        "width": width,
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    }
    return Picture(figure.update_layout(**layout))


def complete(figure: Any, title: str) -> go.Figure:
    """A figure as pages show it: what it leaves open (title, size, style) is the house's.

    Args:
        figure: what a probe's `plot` gave; it is not changed.
        title: where it has none.

    Raises:
        ValueError: it is no plotly figure.
    """
    if not isinstance(figure, go.Figure):
        kind = f"{type(figure).__module__}.{type(figure).__name__}".removeprefix("builtins.")
        raise ValueError(f"plot() must return a plotly Figure, got {kind}")
    layout: Any = figure["layout"]
    title = layout.title.text or title
    size: dict[str, Any] = {"width": layout.width or WIDTH, "height": layout.height or HEIGHT}
    shown = go.Figure(figure)
    if layout.template == templates["plotly"]:  # nobody chose a style
        return styled(shown, title, **size)
    return shown.update_layout(title_text=title, **size)


def in_words(name: str) -> str:
    """The name of a function as a heading.

    >>> in_words("attention_entropy")
    'Attention entropy'
    """
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def cosine_heatmap(values: Any, labels: Any = None, colorbar: str = "cosine") -> go.Heatmap:
    """A matrix of cosines, first row on top (give the y axis `autorange="reversed"`)."""
    return go.Heatmap(z=values, x=labels, y=labels, colorbar={"title": colorbar, "len": 0.9}, **COSINE)


def box_cells(figure: go.Figure, cells: Any, *, size: int = 1, width: float = 2, **subplot: int) -> go.Figure:
    """Draw a box around each (row, column) of a heatmap, or around the `size` x `size` cells from there.

    Args:
        figure: it is changed.
        cells: rows and columns, from 0.
        size: cells on a side.
        width: of the line, in pixels.
        subplot: `row` and `col` of the subplot, where there are some.
    """
    style = {"type": "rect", "line": {"color": "black", "width": width}, "fillcolor": "rgba(0,0,0,0)"}
    if subplot:
        axes: Any = figure.get_subplot(subplot["row"], subplot["col"])
        refs = (axis.plotly_name.replace("axis", "") for axis in axes)
        style |= dict(zip(("xref", "yref"), refs, strict=True))
    boxes = [
        {"x0": column - 0.5, "x1": column + size - 0.5, "y0": row - 0.5, "y1": row + size - 0.5, **style}
        for row, column in cells
    ]
    shapes: Any = figure["layout"]["shapes"]
    return figure.update_layout(shapes=(*shapes, *boxes))  # at once: plotly copies all to add one


def save(figure: go.Figure, path: Path, result: Any = None) -> None:
    """Write a picture: .html, interactive and self-contained (no network), or .png, .svg or .pdf.

    Args:
        figure: the picture.
        path: of the file.
        result: what it is the picture of; an .html page then says below what is seen.

    Raises:
        ValueError: no such folder, another suffix, what is there is no ordinary file, or no kaleido or
            browser to draw a still picture with.
        OSError: the disk refuses; a file that was there before is untouched.
    """
    path = check_can_write(path, "a picture's name", PICTURES)
    if path.suffix == ".html":
        with atomic_write(path) as file:
            file.write(page(figure, result).encode(errors="replace"))
        return
    try:
        data = figure.to_image(path.suffix[1:], scale=2)
    except Exception as error:  # kaleido's, plotly's and the browser's have no common class
        cause = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path.name} needs kaleido (pip install 'anchorlens[export]') and Chrome or Chromium: "
            f"{safe_text(cause[0])}; .html needs neither"
        ) from error
    with atomic_write(path) as file:
        file.write(data)
