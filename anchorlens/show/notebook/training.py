"""A checkpoint, and what a training gave back, as a notebook shows them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anchorlens.configuration import settings
from anchorlens.figures.training_curve import LOSS, known, metric_styles
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.safe import printable
from anchorlens.show.formats import number
from anchorlens.show.templating import view
from anchorlens.tasks.kinds import logged_metrics
from anchorlens.training.result import TrainResult
from anchorlens.views import html

MOST_METRICS = 40
MOST_POINTS = 60
"""Of a line of the small curve."""
WIDTH, HEIGHT = 420, 120
"""Pixels of the small curve, without the steps below it."""
DASHES = {"dot": "2 3", "dash": "6 4", "solid": "", "dashdot": "6 2 1 2"}
"""plotly's names of dashes -> as SVG has them."""


@html.register
def checkpoint_html(checkpoint: Checkpoint) -> str:
    """What is in it, and which of its settings are not the defaults."""
    weights = checkpoint.weights.values()
    dtypes = {str(weight.dtype).removeprefix("torch.") for weight in weights}
    metrics = [
        f"{printable(name)} {number(value) if isinstance(value, float) else printable(value)}"
        for name, value in itertools.islice(checkpoint.metrics.items(), MOST_METRICS)
        if isinstance(value, str | int | float) and name not in ("step", "phase")
    ]
    versions = ", ".join(f"{library} {version}" for library, version in checkpoint.versions.items())
    n_parameters = sum(weight.numel() for weight in weights)
    facts = [
        ("parameters", f"{n_parameters:,} of {', '.join(sorted(dtypes))}"),
        ("metrics", ", ".join(metrics) or "none"),
        ("made with", printable(versions or "not known")),
    ]
    parts = {"task": checkpoint.task, "model": checkpoint.model, "train": checkpoint.train}
    changed = [
        (name, [row for row in settings(config) if row.changed])
        for name, config in parts.items()
        if config is not None
    ]
    return view("checkpoint.html", outline=checkpoint.outline, facts=facts, parts=changed)


@html.register
def train_result_html(result: TrainResult) -> str:
    """Its phase, how it ended, its training curve and its accuracies."""
    checkpoint, log = result.checkpoint, result.log
    ended = f"{result.status} at step {checkpoint.step:,}"
    if checkpoint.train is not None:
        ended += f" of {checkpoint.train.total_steps:,}"
    if log and log[-1].get("seconds") is not None:
        ended += f", {log[-1]['seconds']:,.0f} s"
    return view(
        "train_result.html",
        behaviour=result.behaviour,
        ended=ended,
        outline=checkpoint.outline,
        message=result.message,
        curve=small_curve(log),
        out=None if result.out is None else str(result.out),
        n_lines=len(log),
    )


class Line(NamedTuple):
    """A line of a small training curve."""

    name: str
    points: str
    """As SVG has them."""
    colour: str
    dash: str
    """As SVG has it; empty for a solid line."""
    scale: str = ""
    """How it is to be read."""


class SmallCurve(NamedTuple):
    """A training curve: accuracies from 0 to 1, the loss from its smallest to its largest."""

    lines: list[Line]
    """Those that have two points or more."""
    first: int
    """Step at the left edge."""
    last: int
    """Step at the right edge."""
    width: int = WIDTH
    height: int = HEIGHT


def small_curve(log: Sequence[Mapping[str, Any]]) -> SmallCurve | None:
    """The training curve as a small drawing; None where the log has fewer than two lines.

    Numbers that are not finite are left out.
    """
    steps = [line["step"] for line in log]
    if len(steps) < 2 or steps[0] == steps[-1]:
        return None
    lines = []
    for name, (title, style) in metric_styles(log).items():
        metric = logged_metrics()[name]
        high = metric.highest or 1.0
        points = _points(steps, *known(log, name), 0.0, high)
        scale = "" if metric.unit == "accuracy" else f" (0 to {high:g} {metric.unit})"
        lines.append(Line(title, points, style["line"]["color"], DASHES[style["line"]["dash"]], scale))
    at, losses = known(log, "loss")
    logs = [math.log10(loss) if loss > 0 else -math.inf for loss in losses]
    ends = [value for value in logs if math.isfinite(value)]
    if ends:
        scale = f" ({10 ** max(ends):.2g} to {10 ** min(ends):.2g}, logarithmic)"
        lines.append(Line("loss", _points(steps, at, logs, min(ends), max(ends)), LOSS, "", scale))
    return SmallCurve([line for line in lines if " " in line.points], steps[0], steps[-1])


def _points(
    every_step: Sequence[int], steps: Sequence[int], values: Sequence[float], low: float, high: float
) -> str:
    """At most `MOST_POINTS` of them, the last one included."""
    finite = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    every = max(1, math.ceil(len(finite) / MOST_POINTS))
    first, last = every_step[0], every_step[-1]
    return " ".join(
        f"{WIDTH * (step - first) / (last - first):.0f},"
        f"{2 + (HEIGHT - 4) * (high - value) / ((high - low) or 1.0):.0f}"
        for step, value in finite[::-every][::-1]
    )
