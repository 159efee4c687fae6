"""The style of the figures of probes, with colour-blind-safe scales and sizes for print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import templates

from anchorlens.files.writing import PICTURES, check_can_write, write_whole
from anchorlens.plots.picture import Picture
from anchorlens.texts import first_line, safe_text
from anchorlens.views import page

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#999999"
"""The blue and the vermilion of Okabe and Ito, and a grey for context."""

CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5195")
"""The colour-blind-safe colours of Okabe and Ito, and a dark violet."""

COSINE = {"colorscale": "RdBu_r", "zmin": -1, "zmax": 1}
"""The scale of all cosines and recovered proportions, from -1 (blue) over 0 (white) to 1 (red). A common
scale makes the figures of different checkpoints comparable."""

SHARE = {"colorscale": "Blues", "zmin": 0, "zmax": 1}
"""The scale of values between 0 (white) and 1 (dark blue), such as attention."""

NO_EFFECT = "#D9D9D9"
"""The grey for no causal effect, which is the middle of `EFFECT`."""

EFFECT = {"colorscale": [[0, "#0072B2"], [0.5, NO_EFFECT], [1, "#D55E00"]], "cmin": -1, "cmax": 1}
"""The scale of causal effects. Grey means no effect, vermilion a worse answer, and blue a better answer."""


WIDTH, HEIGHT = 600, 450
"""The default size of a figure in pixels."""


def styled(figure: go.Figure, title: str, *, width: int = WIDTH, height: int = HEIGHT) -> Picture:
    """Return a figure in the common style, with a white background and 12-point text.

    The text is readable at a width of 600 pixels. Notebooks show the figure offline.
    """
    layout: dict[str, Any] = {
        "template": "simple_white",
        "title": {"text": title, "font": {"size": 14}},
        "font": {"size": 12},
        "width": width,
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    }
    return Picture(figure.update_layout(**layout))


def complete(figure: object, title: str) -> go.Figure:
    """Return the figure for a page, with a title, a size and a style.

    Args:
        figure: the result of a probe's `plot`. The function does not change this figure.
        title: the title to use if the figure has no title.

    Raises:
        ValueError: If the object is not a plotly figure.
    """
    if not isinstance(figure, go.Figure):
        kind = f"{type(figure).__module__}.{type(figure).__name__}".removeprefix("builtins.")
        raise ValueError(f"the result of plot() must be a plotly Figure, got {kind}. Return a figure.")
    layout: Any = figure["layout"]
    title = layout.title.text or title
    size: dict[str, Any] = {"width": layout.width or WIDTH, "height": layout.height or HEIGHT}
    shown = go.Figure(figure)
    if layout.template == templates["plotly"]:  # plotly's default: no style was chosen
        return styled(shown, title, **size)
    return shown.update_layout(title_text=title, **size)


def in_words(name: str) -> str:
    """Return the name of a function as a heading.

    >>> in_words("attention_entropy")
    'Attention entropy'
    """
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def cosine_heatmap(values: object, labels: object = None, colorbar: str = "cosine") -> go.Heatmap:
    """Return a heatmap of cosines.

    The setting `autorange="reversed"` of the y axis puts the first row on top.
    """
    return go.Heatmap(z=values, x=labels, y=labels, colorbar={"title": colorbar, "len": 0.9}, **COSINE)


def box_cells(figure: go.Figure, cells: Any, *, size: int = 1, width: float = 2, **subplot: int) -> go.Figure:
    """Draw a box around each of several blocks of `size` x `size` cells in a heatmap.

    Args:
        figure: the figure, which the function changes.
        cells: the (row, column) of the first cell of each box, counted from 0.
        size: the number of cells on a side.
        width: the width of the line in pixels.
        subplot: the `row` and `col` of the subplot, if there are subplots.
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
    figure.layout.shapes = (*shapes, *boxes)  # all at once, since plotly copies all to add or update one
    return figure


def save(figure: go.Figure, path: Path, result: object = None) -> None:
    """Write a figure as a self-contained, interactive .html file, or as .png, .svg or .pdf.

    Args:
        figure: the figure.
        path: the path of the file.
        result: the result that the figure shows. With a result, an .html page has a caption.

    Raises:
        ValueError: If the folder is missing, or the suffix is not supported.
        ValueError: If the path is not an ordinary file.
        ValueError: If kaleido or a browser for static images is not installed.
        OSError: If the write fails. A failed write does not change an existing file.
    """
    path = check_can_write(path, "a picture's name", PICTURES)
    if path.suffix == ".html":
        write_whole(path, page(figure, result).encode(errors="replace"))
        return
    try:
        data = figure.to_image(path.suffix[1:], scale=2)
    except Exception as error:  # errors of kaleido, plotly and the browser have no common class
        raise ValueError(
            "kaleido (pip install '.[export]' in a clone) and Chrome or Chromium must be installed to write "
            f"{path.name}, got an error: {safe_text(first_line(error))}. Install kaleido and a browser, or "
            "write .html."
        ) from error
    write_whole(path, data)
