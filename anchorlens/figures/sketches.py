"""Draws the pictures that a task describes as data: grids, curves, lines, bars, images."""

from __future__ import annotations

import itertools
from typing import Any

import plotly.express as px
import plotly.graph_objects as go

from anchorlens.figures.picture import Picture
from anchorlens.figures.style import BLUE, CATEGORIES, GREY, HEIGHT, ORANGE, SHARE, styled
from anchorlens.figures.training_curve import STYLES
from anchorlens.tasks.shared.sketch import Bars, Curve, Grid, Lines, Mosaic

OUTLINE = {"fillcolor": "rgba(0,0,0,0)", "opacity": 1}
"""Of shapes: the white style fills them grey otherwise."""


def drawn_sketch(sketch: Grid | Curve | Lines | Bars | Mosaic) -> Picture:
    """The picture of a sketch.

    Args:
        sketch: one of `evaluate(...).sketches`.

    Returns:
        A figure: of a `Grid` its values, 0 white to 1 dark blue, with its frame in vermilion; of a `Curve`
        its points with bars of one standard error; of `Lines` the same for each; of `Bars` a bar for each
        name; of a `Mosaic` its images.
    """
    kinds: dict[type, Any] = {Grid: _grid, Curve: _curve, Lines: _lines, Bars: _bars, Mosaic: _mosaic}
    return kinds[type(sketch)](sketch)


def _grid(sketch: Grid) -> Picture:
    hover = f"{sketch.y_title} %{{y}}, {sketch.x_title} %{{x}}: %{{z}}<extra></extra>"
    values = [[None if value is None else float(value) for value in row] for row in sketch.values]
    figure = go.Figure(go.Heatmap(x=list(sketch.x), y=list(sketch.y), z=values, hovertemplate=hover, **SHARE))
    if sketch.frame is not None:
        x0, y0, x1, y1 = sketch.frame
        corners = {"x0": x0 - 0.5, "y0": y0 - 0.5, "x1": x1 + 0.5, "y1": y1 + 0.5}
        figure.add_shape(type="rect", **corners, line={"color": ORANGE, "width": 2}, **OUTLINE)
    figure.update_xaxes(title=sketch.x_title, constrain="domain")
    figure.update_yaxes(title=sketch.y_title, scaleanchor="x", constrain="domain")
    return styled(figure, sketch.title)


def _curve(sketch: Curve) -> Picture:
    figure = go.Figure(_line(sketch.x, sketch.y, sketch.errors, line={"color": BLUE}, marker={"size": 5}))
    if sketch.mark is not None:
        figure.add_vline(x=sketch.mark, line={"color": GREY, "dash": "dash", "width": 1.5}, **OUTLINE)
    return _shares(figure, sketch)


def _bars(sketch: Bars) -> Picture:
    names = list(sketch.y)
    bar = go.Bar(x=list(sketch.y.values()), y=names, orientation="h", marker={"color": BLUE})
    figure = go.Figure(bar.update(hovertemplate="%{y}: %{x:.3f}<extra></extra>"))
    figure.update_xaxes(title=sketch.x_title, range=[0, 1.02])
    figure.update_yaxes(autorange="reversed", automargin=True)
    return styled(figure, sketch.title, height=140 + 20 * len(names))


def _mosaic(sketch: Mosaic) -> Picture:
    pixels, side = sketch.array(), sketch.side
    figure = px.imshow(pixels, binary_string=True, binary_backend="pypng", binary_compression_level=9)
    figure.update_traces(hoverinfo="skip", hovertemplate=None)
    figure.update_xaxes(visible=False)
    middles = [side * (row + 0.5) - 0.5 for row in range(len(sketch.rows))]
    figure.update_yaxes(
        tickvals=middles, ticktext=list(sketch.rows), ticks="", showgrid=False, automargin=True
    )
    for k in range(1, len(sketch.rows)):
        figure.add_hline(y=side * k - 0.5, line={"color": "white", "width": 3})
    for k in range(1, sketch.n_columns):
        figure.add_vline(x=side * k - 0.5, line={"color": "white", "width": 3})
    return styled(figure, sketch.title, height=120 + 64 * len(sketch.rows))


def _lines(sketch: Lines) -> Picture:
    figure = go.Figure()
    colours = itertools.cycle(CATEGORIES[2:])  # the first two are those of ID and OOD
    for name, y in sketch.y.items():
        style = STYLES.get(name) or {"line": {"color": next(colours), "dash": "dashdot"}}
        figure.add_trace(_line(sketch.x, y, sketch.errors[name], name=name, **style))
    figure.update_xaxes(dtick=max(1, len(sketch.x) // 10))
    figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top"}, showlegend=True)
    return _shares(figure, sketch, height=340)


def _line(x: Any, y: Any, errors: Any, **style: Any) -> go.Scatter:
    bars = {"type": "data", "array": list(errors), "thickness": 1, "width": 0}
    return go.Scatter(x=list(x), y=list(y), error_y=bars, mode="lines+markers", **style)


def _shares(figure: go.Figure, sketch: Curve | Lines, height: int = HEIGHT) -> Picture:
    figure.update_xaxes(title=sketch.x_title)
    figure.update_yaxes(title=sketch.y_title, range=[-0.04, 1.04])
    return styled(figure, sketch.title, height=height)
