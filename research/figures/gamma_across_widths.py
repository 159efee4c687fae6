"""Does a gamma mean the same at another width? `transfer` against taking the number as it is.

    python research/figures/gamma_across_widths.py [--seed 0 1 2] [--suffix .png]

Models of width 128 over gamma .4 to 1.2, and narrower ones at the same gamma and learning rate, and at those
that `anchorlens.transfer` gives. If the rule holds, curves over the gamma of width 128 lie on each other
where gamma and learning rate were transferred, and apart where they were not. Two more arms transfer gamma
alone and the learning rate alone, which tells which of them does it.

Numbers: for train and OOD accuracy, commutativity and the stable rank of W_Q over a Gaussian's, the mean
distance between the two widths' curves (means over seeds) by either way, beside the spread between seeds; and
where each curve crosses one half for the first time. The curve of width 128 is shown up to gamma 1.2: a later
preprint (2605.04396) says that the region that composes shrinks at very small initial weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import transfer
from anchorlens.extras.sweep import Cell, grid
from anchorlens.plots import BLUE, CATEGORIES, GREY, ORANGE, styled
from anchorlens.recipes.run_config import RunConfig
from shared.common import options, trained, write

GAMMAS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
"""At width 128."""
LR = 1e-3
"""At width 128, the default's."""
REFERENCE = 128
READINGS: Mapping[str, tuple[str, str]] = {
    "train": ("train", "train accuracy"),
    "ood": ("ood", "OOD accuracy"),
    "commutativity": ("commutativity", "commutativity"),
    "stable_rank": ("stable_rank.w_q_normalized", "stable rank of W_Q / a Gaussian's"),
}
"""Reading -> its name among a cell's numbers, and its title."""
REFERENCE_WAY, SAME, TRANSFERRED = "reference", "same gamma and rate", "transferred"
GAMMA_ALONE, RATE_ALONE = "gamma alone transferred", "rate alone transferred"
WAYS = (SAME, GAMMA_ALONE, RATE_ALONE, TRANSFERRED)
"""What is transferred to a narrower model."""
COLORS = {
    REFERENCE_WAY: GREY,
    SAME: ORANGE,
    GAMMA_ALONE: CATEGORIES[2],
    RATE_ALONE: CATEGORIES[3],
    TRANSFERRED: BLUE,
}

Curve = Mapping[float, Sequence[float | None]]
"""Gamma at width 128 -> the reading of each seed."""


def shape(width: int) -> dict[str, int]:
    """A model of that width in the proportions of `quick`."""
    return {"d_model": width, "d_head": width // 2, "d_mlp": 2 * width}


def runs_of(width: int, way: str, seeds: Sequence[int], steps: int) -> list[tuple[float, RunConfig]]:
    """The gamma of width 128 that a run stands for, and the run."""
    found = []
    for gamma in GAMMAS:
        own_gamma, own_lr = transfer(gamma, LR, REFERENCE, width)
        fields = {
            "gamma": round(own_gamma, 4) if way in (TRANSFERRED, GAMMA_ALONE) else gamma,
            "lr": round(own_lr, 8) if way in (TRANSFERRED, RATE_ALONE) else LR,
            "steps": steps,
            **shape(width),
        }
        runs = grid("quick", {"seed": list(seeds)}, batch_size=256, n_checkpoints=0, **fields)
        found += [(gamma, run) for run in runs]
    return found


def curves(cells: Sequence[Cell], gammas: Sequence[float]) -> dict[str, Curve]:
    """Every reading over gamma, seed by seed."""
    found: dict[str, dict[float, list[float | None]]] = {reading: {} for reading in READINGS}
    for cell, gamma in zip(cells, gammas, strict=True):
        for reading, (number, _) in READINGS.items():
            found[reading].setdefault(gamma, []).append(cell.numbers[number])
    return {reading: dict(curve) for reading, curve in found.items()}


def mean_curve(curve: Curve) -> dict[float, float]:
    """Mean over the seeds that have the number."""
    known = {gamma: [value for value in values if value is not None] for gamma, values in curve.items()}
    return {gamma: fmean(values) for gamma, values in known.items() if values}


def distance(one: Curve, other: Curve) -> float:
    """Mean absolute distance of two curves' means, over the gammas that both have."""
    first, second = mean_curve(one), mean_curve(other)
    return fmean(abs(first[gamma] - second[gamma]) for gamma in first if gamma in second)


def spread(curve: Curve) -> float:
    """Mean over gamma of the standard deviation between seeds."""
    return float(np.mean([np.std([v for v in values if v is not None], ddof=1) for values in curve.values()]))


def crossing(curve: Curve, level: float = 0.5) -> float | None:
    """The first gamma at which the mean crosses a level, linear in between; None where it does not.

    >>> crossing({0.4: [0.0], 0.5: [0.25], 0.6: [0.75]})
    0.55
    """
    points = sorted(mean_curve(curve).items())
    for (a, low), (b, high) in pairwise(points):
        if (low - level) * (high - level) < 0 or high == level:
            return round(a + (b - a) * (level - low) / (high - low), 4)
    return None


def draw(found: Mapping[tuple[int, str], Mapping[str, Curve]]) -> go.Figure:
    """A panel for each reading, a line for each width and way, a point for each seed."""
    figure = make_subplots(
        rows=1, cols=len(READINGS), subplot_titles=[title for _, title in READINGS.values()]
    )
    for (width, way), by_reading in found.items():
        name = f"width {width}" + ("" if way == REFERENCE_WAY else f", {way}")
        for column, curve in enumerate(by_reading.values(), start=1):
            line = mean_curve(curve)
            points = [(gamma, value) for gamma, values in curve.items() for value in values]
            for mode, drawn in (("lines", list(line.items())), ("markers", points)):
                figure.add_scatter(
                    x=[gamma for gamma, _ in drawn],
                    y=[value for _, value in drawn],
                    mode=mode,
                    marker={"color": COLORS[way], "size": 5},
                    name=name,
                    legendgroup=name,
                    showlegend=mode == "lines" and column == 1,
                    row=1,
                    col=column,
                )
    figure.update_xaxes(title="gamma at width 128")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top"})
    return styled(figure, "One gamma at two widths", width=1250, height=430).update_layout(margin_t=80)


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1))
    parser.add_argument("--width", type=int, nargs="+", default=[48], help="widths beside 128")
    parser.add_argument("--steps", type=int, default=1500, help="optimizer steps of every cell")
    given = parser.parse_args()
    asked = [
        (REFERENCE, REFERENCE_WAY),
        *((width, way) for width in given.width for way in WAYS),
    ]
    wanted = {(width, way): runs_of(width, way, given.seed, given.steps) for width, way in asked}
    every = list(dict.fromkeys(run for runs in wanted.values() for _, run in runs))  # gamma 1/2 is no other
    cells = dict(zip(every, trained(given, every), strict=True))
    found = {
        each: curves([cells[run] for _, run in runs], [gamma for gamma, _ in runs])
        for each, runs in wanted.items()
    }
    reference = found[REFERENCE, REFERENCE_WAY]
    numbers: dict[str, Any] = {}
    for (width, way), by_reading in found.items():
        for reading, curve in by_reading.items():
            numbers.setdefault(reading, {})[f"{width}, {way}"] = {
                "curve": curve,
                "first_crossing_of_one_half": crossing(curve),
                "distance_to_width_128": distance(curve, reference[reading]),
                "spread_between_seeds": spread(curve) if len(given.seed) > 1 else None,
            }
    write(given, "gamma_across_widths", draw(found), {"steps": given.steps, "readings": numbers})


if __name__ == "__main__":
    main()
