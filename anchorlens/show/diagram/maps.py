"""The maps: one slice of a sweep over two fields, each place divided into its seeds, none hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from anchorlens.figures import SHARE
from anchorlens.figures.picture import Picture
from anchorlens.show.diagram import canvas
from anchorlens.show.diagram.looks import (
    AGREEMENTS,
    FAILED,
    INK,
    MISSING,
    OUTCOMES,
    PHASES,
    UNDERFIT,
    UNMEASURED,
    Look,
    agreement,
    outcome,
)
from anchorlens.show.diagram.places import Layout, Stripe, arranged
from anchorlens.show.diagram.votes import check_measured, kinds, mean, measured, vote
from anchorlens.sweep.cells import Cell

SCALE = SHARE["colorscale"]
NUMBERS = {
    "id": ("ID accuracy", "no trained cell has one"),
    "ood": ("OOD accuracy", "every pair of the task is trained"),
    "symmetric": (
        "Symmetric accuracy",
        "it is defined only where the mirror of an unseen pair is trained on another target than the "
        "composition (regime 'conflict')",
    ),
    "commutativity": ("Commutativity", "no unseen pair of the task has a mirror"),
}
"""Share of a cell -> its name, and why it may be defined nowhere."""


def phase_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """The phase by behaviour of every cell, and how the seeds of each place voted.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Returns:
        A figure with one stripe for each cell, seeds in order, coloured by phase. Written are the sign of the
        phase and how many seeds agree, or each seed's sign where they do not.

    Raises:
        ValueError: no cell, or cells that differ in something else.

    Source: the phase diagrams of arXiv 2405.05409 and 2501.08537.
    """
    return _map_of_looks(cells, x, y, outcome, OUTCOMES, "Phase by behaviour", always=PHASES)


def agreement_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """Whether the behaviour verdict and the mechanism verdict of every cell name the same phase.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Returns:
        A figure with one stripe for each cell, seeds in order.

    Raises:
        ValueError: no cell, or cells that differ in something else.
    """
    title = "Behaviour against mechanism"
    return _map_of_looks(cells, x, y, agreement, AGREEMENTS, title, always=AGREEMENTS[:2])


def number_map(
    cells: Sequence[Cell], number: str, x: str = "gamma", y: str | None = "weight_decay"
) -> Picture:
    """One accuracy of every cell, 0..1.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        number: `id`, `ood`, `symmetric` or `commutativity`.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Returns:
        A figure with one stripe for each cell, seeds in order, white for 0 to dark blue for 1. Written is the
        mean over the seeds that have the number (and how many of all that are); stripes of cells that are
        underfit or failed are hatched.

    Raises:
        ValueError: no cell, cells that differ in something else, an unknown number, or one that no cell has.

    Source: the accuracies over gamma and weight decay of arXiv 2405.05409 and 2501.08537.
    """
    if number not in NUMBERS:
        raise ValueError(f"number must be one of {', '.join(NUMBERS)}, got {number!r}")
    title, why = NUMBERS[number]
    layout = arranged(cells, x, y)
    check_measured(cells, number, title, why)
    groups = kinds(cells, number)
    figure = go.Figure()
    for look in (None, UNDERFIT):
        stripes = _stripes(layout, groups.get(look, ()))
        if stripes:
            values = [measured(stripe.cell, number) for stripe in stripes]
            marker = {"color": _colours(values), "line": {"color": INK, "width": 0.5}}
            if look is not None:  # plotly.js hatches in the bar's own colour where each bar has one
                marker |= {"color": INK, "pattern": canvas.hatch(look, ground=marker["color"])}
            figure.add_trace(canvas.bars(layout, stripes, marker=marker, showlegend=False))
    for look in (UNDERFIT, UNMEASURED, FAILED, MISSING):
        if groups.get(look):
            shown = () if look is UNDERFIT else _stripes(layout, groups[look])
            figure.add_trace(canvas.look_bars(layout, shown, look))
    figure.update_layout(annotations=canvas.written(layout, lambda place: mean(place.cells, number)))
    scale = {"colorscale": SCALE, "cmin": 0, "cmax": 1, "color": [0], "showscale": True}
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=scale, showlegend=False)
    return canvas.finished(figure, layout, title, scale=True)


def _map_of_looks(
    cells: Sequence[Cell],
    x: str,
    y: str | None,
    look_of: Callable[[Cell], Look],
    looks: Sequence[Look],
    title: str,
    always: Sequence[Look],
) -> Picture:
    """A map of what each cell came to; the looks in `always` stand in the legend in any case."""
    layout = arranged(cells, x, y)
    found: dict[Look, list[Stripe]] = {}
    for stripe in layout.stripes:
        found.setdefault(look_of(stripe.cell), []).append(stripe)
    figure = go.Figure()
    for look in looks:
        if look in always or look in found:
            figure.add_trace(canvas.look_bars(layout, found.get(look, ()), look))
    texts = canvas.written(layout, lambda place: vote([look_of(cell) for cell in place.cells]))
    figure.update_layout(annotations=texts)
    return canvas.finished(figure, layout, title)


def _stripes(layout: Layout, cells: Sequence[Cell]) -> list[Stripe]:
    chosen = {cell.id for cell in cells}
    return [stripe for stripe in layout.stripes if stripe.cell.id in chosen]


def _colours(values: Sequence[float | None]) -> list[str]:
    """What the colour bar shows for shares; plotly.js draws no hatch over colours that it works out."""
    return [str(sample_colorscale(SCALE, min(max(value or 0.0, 0.0), 1.0))[0]) for value in values]
