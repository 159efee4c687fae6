"""A run's training curve as a drawing of a few kilobytes that needs no script: for views in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorlens.tasks.phases import COLOURS

Log = Sequence[Mapping[str, Any]]
"""Lines with `step` and, as far as they were measured, `loss`, `train_accuracy`, `id_accuracy` and
`ood_accuracy`."""

LOSS = COLOURS["Phase 3"]
"""Colour of the loss."""

LOOKS = {
    "train": ("var(--al-train)", "2 3"),
    "ID": ("var(--al-id)", "6 4"),
    "OOD": ("var(--al-ood)", ""),
}
"""Accuracy -> colour (of view.css) and dashes, those of `curve.ACCURACIES`."""

MOST_POINTS = 60
"""Of a line."""


@dataclass(frozen=True)
class SmallLine:
    """A line of a small drawing."""

    name: str
    """Of what is drawn."""
    points: str
    """As SVG has them."""
    colour: str
    """Of the line."""
    dash: str
    """As SVG has it; empty for a solid line."""
    scale: str
    """How it is to be read."""


@dataclass(frozen=True)
class SmallCurve:
    """A training curve without axes: accuracies from 0 to 1, the loss from its smallest to its largest."""

    lines: tuple[SmallLine, ...]
    """Those that have two points or more."""
    first: int
    """Step at the left edge."""
    last: int
    """Step at the right edge."""
    words: str
    """The same for who does not see it."""
    width: int = 420
    """Pixels."""
    height: int = 120
    """Pixels, without the steps below."""


def small_curve(log: Log) -> SmallCurve | None:
    """The training curve as a small drawing; None where the log has fewer than two lines.

    Numbers that are not finite are left out.
    """
    steps = [line["step"] for line in log]
    if len(steps) < 2 or steps[0] == steps[-1]:
        return None
    empty = SmallCurve((), steps[0], steps[-1], "")
    lines = []
    for name, (colour, dash) in LOOKS.items():
        points = _points(empty, *known(log, f"{name.lower()}_accuracy"), 0.0, 1.0)
        lines.append(SmallLine(name, points, colour, dash, ""))
    at, losses = known(log, "loss")
    logs = [math.log10(loss) if loss > 0 else -math.inf for loss in losses]
    ends = [value for value in logs if math.isfinite(value)]
    if ends:
        scale = f" ({10 ** max(ends):.2g} to {10 ** min(ends):.2g}, logarithmic)"
        points = _points(empty, at, logs, min(ends), max(ends))
        lines.append(SmallLine("loss", points, LOSS, "", scale))
    lines = [line for line in lines if " " in line.points]
    words = f"Training from step {steps[0]:,} to {steps[-1]:,}: {', '.join(line.name for line in lines)}"
    return SmallCurve(tuple(lines), steps[0], steps[-1], words)


def known(log: Log, name: str) -> tuple[list[Any], list[Any]]:
    """Steps and values where something was measured."""
    known = [line for line in log if line.get(name) is not None]
    return [line["step"] for line in known], [line[name] for line in known]


def _points(curve: SmallCurve, steps: Sequence[int], values: Sequence[float], low: float, high: float) -> str:
    """At most `MOST_POINTS` of them, the last one included."""
    finite = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    every = max(1, math.ceil(len(finite) / MOST_POINTS))
    chosen = finite[::-every][::-1]
    across, up, height = curve.last - curve.first, (high - low) or 1.0, curve.height - 4
    return " ".join(
        f"{curve.width * (step - curve.first) / across:.0f},{2 + height * (high - value) / up:.0f}"
        for step, value in chosen
    )
