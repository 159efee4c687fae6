"""Notebook views of a checkpoint, an evaluation, and a training while it runs and after it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anchorlens.configuration import settings
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.plots.curves import LOSS, measured, metric_styles, thinned
from anchorlens.show.templating import view
from anchorlens.show.words import number
from anchorlens.tasks.registry import logged_metrics
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.texts import safe_text
from anchorlens.training.loop import TrainResult
from anchorlens.training.progress import Progress
from anchorlens.views import html

MOST_METRICS = 40
MOST_POINTS = 60
"""The largest number of points of a line in the small curve."""
WIDTH, HEIGHT = 420, 120
"""The size of the small curve in pixels, without the steps below the curve."""
DASHES = {"dot": "2 3", "dash": "6 4", "solid": "", "dashdot": "6 2 1 2"}
"""The SVG value of each dash style, by the plotly name of the style."""


@html.register
def checkpoint_html(checkpoint: Checkpoint) -> str:
    """Return the content of a checkpoint, and the settings that differ from the defaults, as HTML."""
    weights = checkpoint.weights.values()
    dtypes = ", ".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in weights}))
    metrics = [
        f"{safe_text(name)} {number(value) if isinstance(value, float) else safe_text(value)}"
        for name, value in itertools.islice(checkpoint.metrics.items(), MOST_METRICS)
        if isinstance(value, str | int | float) and name not in ("step", "phase")
    ]
    versions = ", ".join(f"{library} {version}" for library, version in checkpoint.versions.items())
    facts = [
        ("parameters", f"{sum(weight.numel() for weight in weights):,} of {dtypes}"),
        ("metrics", ", ".join(metrics) or "none"),
        ("made with", safe_text(versions or "not known")),
    ]
    configs = {"task": checkpoint.task, "model": checkpoint.model_config, "train": checkpoint.train_config}
    parts = [(name, settings(config)) for name, config in configs.items() if config]
    return view("checkpoint.html", overview=checkpoint.overview, facts=facts, parts=parts)


@html.register
def train_result_html(result: TrainResult) -> str:
    """Return HTML with the phase of a run, how the run ended, the training curve, and the accuracies."""
    checkpoint, log = result.checkpoint, result.log
    ended = f"{result.status} at step {checkpoint.step:,}"
    if checkpoint.train_config is not None:
        ended += f" of {checkpoint.train_config.total_steps:,}"
    if log and log[-1].get("seconds") is not None:
        ended += f", {log[-1]['seconds']:,.0f} s"
    return view(
        "train_result.html",
        behaviour=result.behaviour,
        ended=ended,
        overview=checkpoint.overview,
        message=result.message,
        curve=small_curve(log),
        steps=[line["step"] for line in log],
        size=(WIDTH, HEIGHT),
        out=None if result.out is None else str(result.out),
    )


@html.register
def evaluation_html(behaviour: Evaluation) -> str:
    """Return the behavioural phase and all measurements as HTML."""
    return view("behaviour.html", behaviour=behaviour)


@html.register
def progress_html(progress: Progress) -> str:
    """Return the progress as a few kilobytes of HTML and SVG, without a script."""
    log = progress.log
    return view(
        "progress.html",
        words=repr(progress),
        done=progress.done,
        total=progress.total,
        curve=small_curve(log),
        ends=(log[0]["step"], log[-1]["step"]) if log else (0, 0),
        size=(WIDTH, HEIGHT),
    )


class SmallLine(NamedTuple):
    """A line of a small training curve."""

    name: str
    points: str
    """The points in SVG syntax."""
    colour: str
    dash: str
    """The dash style in SVG syntax, or an empty text for a solid line."""
    scale: str = ""
    """The scale of the line, as text."""


def small_curve(log: Sequence[Mapping[str, Any]]) -> list[SmallLine]:
    """Return the lines of a small training curve.

    Accuracies have the scale from 0 to 1. The scale of the loss goes from the smallest to the largest loss.

    The lines omit values that are not finite. The result omits a line of fewer than two points.
    """
    steps = [line["step"] for line in log]
    if len(steps) < 2 or steps[0] == steps[-1]:
        return []
    ends = steps[0], steps[-1]
    lines = []
    for name, (title, style) in metric_styles(log).items():
        metric = logged_metrics()[name]
        high = metric.highest or 1.0
        scale = "" if metric.unit == "accuracy" else f" (0 to {high:g} {metric.unit})"
        at, values = (np.array(column, dtype=float) for column in measured(log, name))
        points, line = _points(ends, at, values, 0.0, high), style["line"]
        lines.append(SmallLine(title, points, line["color"], DASHES[line["dash"]], scale))
    at, losses = (np.array(column, dtype=float) for column in measured(log, "loss"))
    usable = np.isfinite(losses) & (losses > 0)
    if usable.any():
        logs = np.log10(losses[usable])
        scale = f" ({losses[usable].max():.2g} to {losses[usable].min():.2g}, logarithmic)"
        points = _points(ends, at[usable], logs, logs.min(), logs.max())
        lines.append(SmallLine("loss", points, LOSS, "", scale))
    return [line for line in lines if " " in line.points]


def _points(ends: tuple[int, int], steps: np.ndarray, values: np.ndarray, low: float, high: float) -> str:
    """Return at most `MOST_POINTS` of the points, including the last point, in SVG syntax."""
    finite = np.isfinite(values)
    drawn = thinned(int(finite.sum()), MOST_POINTS)
    x = WIDTH * (steps[finite][drawn] - ends[0]) / (ends[1] - ends[0])
    y = 2 + (HEIGHT - 4) * (high - values[finite][drawn]) / ((high - low) or 1.0)
    return " ".join(f"{across:.0f},{down:.0f}" for across, down in zip(x, y, strict=True))
