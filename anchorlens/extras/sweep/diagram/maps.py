"""The maps: a map shows one slice of a sweep over two fields, with a band for every seed in each square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from plotly.colors import get_colorscale, sample_colorscale

from anchorlens.extras.sweep.cells import Cell, SweepResult, metrics_of
from anchorlens.extras.sweep.diagram import axes, drawing, outcomes
from anchorlens.extras.sweep.diagram.layout import FILLED, Band, Layout, Square, arranged
from anchorlens.extras.sweep.diagram.outcomes import FAILED, MISSING, UNDERFIT, Category, measured, trouble
from anchorlens.plots import SHARE, Picture, plotly_text
from anchorlens.show import Caption, captions_in
from anchorlens.tasks import Metric, has_labels, has_phases
from anchorlens.texts import safe_repr
from anchorlens.views import figure

CAPTIONS = captions_in(Path(__file__).parents[1] / "templates/captions.toml")
"""The caption of each map."""
SCALE = SHARE["colorscale"]
RANK = "stable_rank.w_q"
PASSED = "ood_passed_at"
LARGEST = 26
"""The diameter in pixels of the bubble of Phase 3, if the square has space."""
IN_LEGEND = 16
"""The diameter of that bubble in the legend, the largest that plotly.js draws."""
SYMBOLS = {
    outcomes.PHASES[0]: ("circle", 0.4),
    outcomes.PHASES[1]: ("circle", 0.6),
    outcomes.EITHER: ("circle", 0.7),
    outcomes.PHASES[2]: ("circle", 0.8),
    outcomes.PHASES[3]: ("circle", 1.0),
    outcomes.SOLUTIONS[0]: ("square", 0.9),
    outcomes.SOLUTIONS[1]: ("square-open", 0.9),
    outcomes.SOLUTIONS[2]: ("cross", 0.9),
    outcomes.SOLUTIONS[3]: ("triangle-up", 0.7),
    outcomes.LEARNT[0]: ("circle", 0.4),
    outcomes.LEARNT[1]: ("circle", 0.7),
    outcomes.LEARNT[2]: ("circle", 1.0),
    outcomes.UNDECIDED: ("diamond", 0.6),
    UNDERFIT: ("x", 0.55),
    FAILED: ("x-thin", 0.5),
    outcomes.UNMEASURED: ("line-ew", 0.5),
    MISSING: ("circle-open", 0.3),
}
"""The marker symbol of each outcome, and its size relative to the marker of Phase 3."""


@figure.register
def sweep_figure(result: SweepResult, x: str | None = None, y: str | None = None) -> Picture:
    """Draw the map of phases for `SweepResult.plot`, with the same arguments and errors."""
    cells, x, y = axes.runs_to_draw(result, "a sweep must have at least one run to plot", x, y)
    first, *others = axes.slices(cells, x, y)
    drawn = phase_map(first.cells, x, y)
    if others:
        more = f"{first.label} (1 of {len(others) + 1} slices)"
        drawn.update_layout(title_text=f"{drawn['layout']['title']['text']}: {plotly_text(more)}")
    return drawn


def phase_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """Draw the behavioural phase of every run, and the agreement of the seeds in each square.

    Args:
        cells: one or more runs. The runs may differ only in x, y, the seed and fields that vary with x or y.
        x: the horizontal field of the configurations.
        y: the vertical field, or None for one row.

    Returns:
        A figure with one band for each run, in the order of the seeds, coloured by phase. A square shows the
        symbol of the phase and the number of seeds. If the seeds have different phases, the square shows the
        symbols of the seeds' phases.

    Raises:
        ValueError: If there are no runs, or the runs differ in a field that the map does not show.

    Source: the phase diagrams of arXiv 2405.05409 and 2501.08537.
    """
    return Picture(_phases(arranged(cells, x, y)))


def agreement_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """Draw whether the probe verdict and the behavioural verdict assign the same phase to each run.

    Args:
        cells: one or more runs. The runs may differ only in x, y, the seed and fields that vary with x or y.
        x: the horizontal field of the configurations.
        y: the vertical field, or None for one row.

    Returns:
        A figure with one band for each run, in the order of the seeds.

    Raises:
        ValueError: If there are no runs, or the runs differ in a field that the map does not show.
    """
    return Picture(_agreements(arranged(cells, x, y)))


def number_map(
    cells: Sequence[Cell], number: str, x: str = "gamma", y: str | None = "weight_decay"
) -> Picture:
    """Draw one metric of every run.

    Args:
        cells: one or more runs. The runs may differ only in x, y, the seed and fields that vary with x or y.
        number: the name of a metric of the task, for example `id` or `ood`.
        x: the horizontal field of the configurations.
        y: the vertical field, or None for one row.

    Returns:
        A figure with one band for each run, in the order of the seeds. The colour goes from white for the
        metric's lowest value to dark blue for its highest value. For an accuracy, white is 0 and dark blue is
        1. A square shows the metric's mean over the seeds that have a value. If some seeds lack a value, the
        square also shows the number of seeds with a value. Bands of underfit or failed runs are hatched.

    Raises:
        ValueError: If there are no runs, or the runs differ in a field that the map does not show. The metric
            must be known, and at least one run must have a value of the metric.

    Source: the plots of accuracy against gamma and weight decay in arXiv 2405.05409 and 2501.08537.
    """
    layout = arranged(cells, x, y)
    metrics = {metric.name: metric for metric in metrics_of(cells)}
    if number not in metrics:
        raise ValueError(
            f"`number` must be one of {', '.join(metrics)}, got {safe_repr(number)}. Use another metric"
        )
    return Picture(_numbers(metrics[number], layout))


def rank_map(cells: Sequence[Cell], x: str = "gamma", y: str | None = "weight_decay") -> Picture:
    """Draw the stable rank of the first layer's W_Q in every run, together with the phase.

    Args:
        cells: one or more runs. The runs may differ only in x, y, the seed and fields that vary with x or y.
        x: the horizontal field of the configurations.
        y: the vertical field, or None for one row.

    Returns:
        A figure with one bubble for each run, with the seeds side by side. A bubble's size shows the
        behavioural phase, and a cross marks an underfit run. The colour shows the stable rank, which is at
        least 1. At a stable rank of 1, all neurons of W_Q share one direction. A square shows the mean stable
        rank of its runs.

    Raises:
        ValueError: If there are no runs, or the runs differ in a field that the map does not show. At least
            one run must have a stable rank.

    Source: the plot of stable rank against gamma and weight decay in arXiv 2501.08537.
    """
    return Picture(_ranks(arranged(cells, x, y)))


def _phases(layout: Layout) -> dict[str, Any]:
    title = {
        "solution": "Solution by behaviour",
        "label": "What was learnt, by behaviour",
        "phase": "Phase by behaviour",
    }[_kind(layout.cells)]
    return _map_of_categories(layout, outcomes.outcome, outcomes.OUTCOMES, title)


def _courses(layout: Layout) -> dict[str, Any]:
    return _map_of_categories(layout, outcomes.course, outcomes.COURSES, "Course of training")


def _agreements(layout: Layout) -> dict[str, Any]:
    title = "Behaviour against the probes"
    return _map_of_categories(layout, outcomes.agreement, outcomes.AGREEMENTS, title)


def _map_of_categories(
    layout: Layout,
    category_of: Callable[[Cell], Category],
    categories: Sequence[Category],
    title: str,
) -> dict[str, Any]:
    """Draw a map of the category of each cell; the legend has those that occur."""
    groups = layout.by_category(category_of)
    legend = [category for category in categories if category in groups]
    data = [drawing.category_bars(layout, groups[category], category) for category in legend]
    texts = drawing.written(layout, lambda square: outcomes.vote(list(map(category_of, square.cells))))
    return drawing.figure(layout, title, data, annotations=texts)


def _groups(
    layout: Layout, number: str, category_of: Callable[[Cell], Category], without: Category
) -> dict[Category, list[Band]]:
    """Return the bands of each category; a trained cell that lacks the number is in `without`."""

    def of_number(cell: Cell) -> Category:
        category = category_of(cell)
        there = category in (FAILED, MISSING) or measured(cell, number) is not None
        return category if there else without

    return layout.by_category(of_number)


def _numbers(metric: Metric, layout: Layout) -> dict[str, Any]:
    outcomes.check_measured(layout.cells, metric.name, metric.heading)
    low = 0.0 if metric.lowest is None else metric.lowest
    high = 1.0 if metric.highest is None else metric.highest
    return _map_of_numbers(layout, metric.name, metric.heading, (low, high), ".2f", outcomes.UNMEASURED)


def _steps(layout: Layout) -> dict[str, Any]:
    title = "Step at which OOD accuracy passes 0.50"
    outcomes.check_measured(layout.cells, PASSED, title)
    last = max(step for cell in layout.cells if (step := measured(cell, PASSED)) is not None)
    return _map_of_numbers(layout, PASSED, title, (0.0, float(last)), ",.0f", outcomes.NEVER)


def _map_of_numbers(
    layout: Layout, number: str, title: str, ends: tuple[float, float], spec: str, without: Category
) -> dict[str, Any]:
    """Draw a map of a number of each cell, from white at the lower end of its scale to dark blue."""
    low, high = ends
    fit = Category("fit", "", "")  # the normal case has no legend entry
    groups = _groups(layout, number, lambda cell: trouble(cell) or fit, without)
    data = []
    for category in (fit, UNDERFIT):
        if bands := groups.get(category):
            values = np.array([measured(band.cell, number) for band in bands], dtype=float)
            shares = np.clip((values - low) / (high - low), 0, 1)
            colours = list(map(str, sample_colorscale(SCALE, shares.tolist())))
            marker = {"color": colours, "line": {"color": outcomes.INK, "width": 0.5}}
            if category is UNDERFIT:  # with a colour per bar, plotly.js hatches in that colour
                marker |= {"color": outcomes.INK, "pattern": drawing.hatch(category, ground=colours)}
            data.append(drawing.bars(layout, bands, marker=marker, showlegend=False))
    for category in (UNDERFIT, without, FAILED, MISSING):
        if bands := groups.get(category):
            data.append(drawing.category_bars(layout, () if category is UNDERFIT else bands, category))
    texts = drawing.written(layout, lambda square: outcomes.mean(square.cells, number, spec))
    scale = {"colorscale": get_colorscale(SCALE), "cmin": low, "cmax": high, "color": [low]}
    scale |= {"showscale": True, "colorbar": drawing.scale_bar(layout)}
    data.append(_no_points(marker=scale, showlegend=False))
    return drawing.figure(layout, title, data, scale=True, annotations=texts)


def _ranks(layout: Layout) -> dict[str, Any]:
    outcomes.check_measured(layout.cells, RANK, "stable rank of W_Q")
    largest = min(LARGEST, 0.95 * drawing.column_width(layout) * FILLED / drawing.most_seeds(layout))

    groups = _groups(layout, RANK, outcomes.outcome, outcomes.UNMEASURED)
    data = []
    for category, (symbol, share) in SYMBOLS.items():
        if bands := groups.get(category):
            drawn = {"symbol": symbol, "line": {"color": outcomes.INK, "width": 1}}
            in_legend = {**drawn, "size": share * IN_LEGEND, "color": "#C9CED6"}
            data.append(_no_points(name=category.name, marker=in_legend))
            data.append(_bubbles(layout, bands, {**drawn, "size": share * largest}))

    def mean_rank(square: Square) -> str:
        return outcomes.mean(square.cells, RANK, ".3g").replace("<br>", ", ")

    texts = drawing.written(layout, mean_rank, yshift=-20, bgcolor=outcomes.CLEAR, font={"size": 11})
    scale = {"colorscale": get_colorscale("Viridis"), "colorbar": drawing.scale_bar(layout, "stable<br>rank")}
    return drawing.figure(layout, "Stable rank of W_Q", data, scale=True, annotations=texts, coloraxis=scale)


def _bubbles(layout: Layout, bands: Sequence[Band], marker: dict[str, Any]) -> dict[str, Any]:
    """Make one bubble for each band, a little above its middle, since the mean rank is written below."""
    ranks = [measured(band.cell, RANK) for band in bands]
    colour = {"color": outcomes.INK} if None in ranks else {"color": ranks, "coloraxis": "coloraxis"}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [band.centre for band in bands],
        "y": [band.bottom + 0.56 * FILLED for band in bands],
        "marker": {**marker, **colour},
        "showlegend": False,
        **drawing.identified(layout, bands),
    }


def _no_points(**options: object) -> dict[str, Any]:
    """Make a trace without points, for an entry of the legend or a colour bar."""
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], **options}


class Map(NamedTuple):
    """A type of map on the page."""

    name: str
    """The name for programs."""
    draw: Callable[[Layout], dict[str, Any]]
    """The function from the layout to the figure. A ValueError gives the reason why a map cannot be drawn."""
    caption: Caption
    """The heading, and how to read the map."""


def maps_of(cells: Sequence[Cell]) -> tuple[Map, ...]:
    """Return all maps of a page on these runs, in their order on the page.

    The map of train accuracy is included if a run is underfit. The map "Course of training" is included if
    the tasks do not have OOD inputs.
    """
    underfit = any(trouble(cell) is UNDERFIT for cell in cells)
    numbers = (
        Map(
            one.name,
            partial(_numbers, one),
            Caption(
                one.heading,
                f"The colour shows this value: {one.meaning}. The label gives the mean over the seeds."
                + (" Lower is better." if one.higher_is_better is False else ""),
            ),
        )
        for one in metrics_of(cells)
        if (one.in_tables or one.in_maps) and (underfit or one.name != "train")
    )
    captions = _captions(cells)
    return (
        Map("phase", _phases, captions["phase"]),
        *([Map("course", _courses, captions["course"])] if _is_without_ood(cells) else []),
        *numbers,
        *([Map(PASSED, _steps, captions[PASSED])] if any(cell.numbers.get(PASSED) for cell in cells) else []),
        Map("stable_rank", _ranks, captions["stable_rank"]),
        Map("agreement", _agreements, captions["agreement"]),
    )


def _is_without_ood(cells: Sequence[Cell]) -> bool:
    of_tasks = {cell.run.task.metrics for cell in cells}
    return all(has_labels(metrics) and not has_phases(metrics) for metrics in of_tasks)


def _kind(cells: Sequence[Cell]) -> str:
    """Return the word for what these runs have: phases, solutions, or labels of a task without OOD."""
    if not set(map(outcomes.outcome, cells)).isdisjoint(outcomes.SOLUTIONS):
        return "solution"
    return "label" if _is_without_ood(cells) else "phase"


def _captions(cells: Sequence[Cell]) -> dict[str, Caption]:
    """Return the caption of each map, in the words of what these runs have."""
    what, found = _kind(cells), set(map(outcomes.outcome, cells))
    words = {"what": what, "What": what.capitalize(), "aside": "", "unseen": "held-out data", "unfit": ""}
    if what == "phase":
        words |= {"aside": ", commutativity aside", "unseen": "unseen pairs"}
    if found <= {UNDERFIT, FAILED, MISSING}:
        words["unfit"] = f" No run here has fit its training data, so none has a {what}."
    elif UNDERFIT in found:
        words["unfit"] = f" A run that has not fit its training data has no {what}."
    texts = {name: (text.format(**words) for text in caption) for name, caption in CAPTIONS.items()}
    return {name: Caption(*text) for name, text in texts.items()}
