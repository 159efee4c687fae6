"""Draw the figures that a task describes as data, such as grids, curves, lines, bars and images."""

from __future__ import annotations

import itertools
from typing import Any

import plotly.express as px
import plotly.graph_objects as go

from anchorlens.plots.curves import STYLES
from anchorlens.plots.picture import Picture
from anchorlens.plots.style import BLUE, CATEGORIES, GREY, HEIGHT, ORANGE, SHARE, styled
from anchorlens.tasks.shared.figure_specs import Bars, Curve, Grid, ImageGrid, Lines

OUTLINE = {"fillcolor": "rgba(0,0,0,0)", "opacity": 1}
"""The style of shapes, which the white template would otherwise fill grey."""


def figure_of(spec: Grid | Curve | Lines | Bars | ImageGrid) -> Picture:
    """Draw the figure of a spec.

    Args:
        spec: an entry of `evaluate(...).figure_specs`.

    Returns:
        The figure of the spec. The figure of a `Grid` shows values from 0 (white) to 1 (dark blue), and the
        frame of the grid in vermilion. The figure of a `Curve` or of `Lines` shows points with error bars of
        one standard error. The figure of `Bars` shows a bar for each name, and the figure of an `ImageGrid`
        shows its images.
    """
    kinds: dict[type, Any] = {Grid: _grid, Curve: _curve, Lines: _lines, Bars: _bars, ImageGrid: _mosaic}
    return kinds[type(spec)](spec)


def _grid(spec: Grid) -> Picture:
    hover = f"{spec.y_title} %{{y}}, {spec.x_title} %{{x}}: %{{z}}<extra></extra>"
    values = [[None if value is None else float(value) for value in row] for row in spec.values]
    figure = go.Figure(go.Heatmap(x=list(spec.x), y=list(spec.y), z=values, hovertemplate=hover, **SHARE))
    if spec.frame is not None:
        x0, y0, x1, y1 = spec.frame
        corners = {"x0": x0 - 0.5, "y0": y0 - 0.5, "x1": x1 + 0.5, "y1": y1 + 0.5}
        figure.add_shape(type="rect", **corners, line={"color": ORANGE, "width": 2}, **OUTLINE)
    figure.update_xaxes(title=spec.x_title, constrain="domain")
    figure.update_yaxes(title=spec.y_title, scaleanchor="x", constrain="domain")
    return styled(figure, spec.title)


def _curve(spec: Curve) -> Picture:
    figure = go.Figure(_line(spec.x, spec.y, spec.errors, line={"color": BLUE}, marker={"size": 5}))
    if spec.mark is not None:
        figure.add_vline(x=spec.mark, line={"color": GREY, "dash": "dash", "width": 1.5}, **OUTLINE)
    return _shares(figure, spec)


def _bars(spec: Bars) -> Picture:
    names = list(spec.y)
    bar = go.Bar(x=list(spec.y.values()), y=names, orientation="h", marker={"color": BLUE})
    figure = go.Figure(bar.update(hovertemplate="%{y}: %{x:.3f}<extra></extra>"))
    figure.update_xaxes(title=spec.x_title, range=[0, 1.02])
    figure.update_yaxes(autorange="reversed", automargin=True)
    return styled(figure, spec.title, height=140 + 20 * len(names))


def _mosaic(spec: ImageGrid) -> Picture:
    pixels, side = spec.array(), spec.side
    figure = px.imshow(pixels, binary_string=True, binary_backend="pypng", binary_compression_level=9)
    figure.update_traces(hoverinfo="skip", hovertemplate=None)
    figure.update_xaxes(visible=False)
    middles = [side * (row + 0.5) - 0.5 for row in range(len(spec.rows))]
    figure.update_yaxes(tickvals=middles, ticktext=list(spec.rows), ticks="", showgrid=False, automargin=True)
    for k in range(1, len(spec.rows)):
        figure.add_hline(y=side * k - 0.5, line={"color": "white", "width": 3})
    for k in range(1, spec.n_columns):
        figure.add_vline(x=side * k - 0.5, line={"color": "white", "width": 3})
    return styled(figure, spec.title, height=120 + 64 * len(spec.rows))


def _lines(spec: Lines) -> Picture:
    figure = go.Figure()
    colours = itertools.cycle(CATEGORIES[2:])  # the first two belong to ID and OOD
    for name, y in spec.y.items():
        style = STYLES.get(name) or {"line": {"color": next(colours), "dash": "dashdot"}}
        figure.add_trace(_line(spec.x, y, spec.errors[name], name=name, **style))
    figure.update_xaxes(dtick=max(1, len(spec.x) // 10))
    figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top"}, showlegend=True)
    return _shares(figure, spec, height=340)


def _line(x: Any, y: Any, errors: Any, **style: object) -> go.Scatter:
    bars = {"type": "data", "array": list(errors), "thickness": 1, "width": 0}
    return go.Scatter(x=list(x), y=list(y), error_y=bars, mode="lines+markers", **style)


def _shares(figure: go.Figure, spec: Curve | Lines, height: int = HEIGHT) -> Picture:
    figure.update_xaxes(title=spec.x_title)
    figure.update_yaxes(title=spec.y_title, range=[-0.04, 1.04])
    return styled(figure, spec.title, height=height)
