"""Figure 8B of arXiv 2501.08537: which pairs take longest where the rule of one and its mirror is broken.

    python research/figures/j8_convergence.py [--seed 0 1 2 3 4] [--suffix .png]
    python research/figures/j8_convergence.py --from-json docs/images/figures/j8_convergence.json

Claim. Where the rule of (1,2) and (2,1) is broken, a model with a small initialisation (gamma .8) takes more
epochs to 60 % accuracy on (1,1), (1,2), (2,1) and (2,2) than on the other pairs. (8A is c6_complexity.py's.)

Complexity 1, and as a control of the same seed complexity 0, in which all pairs obey: (1,1) and (2,2) are
slow there too, so that the claim is asked of the step over that in the control. Each of the 16 pairs by
itself, on its training sequences, linear between two checkpoints (pair_fit.py). With --from-json nothing is
trained: it is computed from the accuracies that an earlier run of this script has stored.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.plots import BLUE, ORANGE, styled
from anchorlens.recipes.run_config import RunConfig
from anchorlens.tasks.two_anchor.sequences import Pair
from c6_complexity import GAMMAS, LARGE_GAMMA, LONGEST, SMALL_GAMMA
from shared.common import options, runs, taken_up, trained, write
from shared.pair_fit import BROKEN, MARKED, THRESHOLDS, Course, course, summary, text

NAMES = {SMALL_GAMMA: " (small initialisation)", LARGE_GAMMA: " (large initialisation)"}
N_CHECKPOINTS = 40
KINDS = {"12 and 21": ORANGE, "also marked in the paper": "#E69F00", "the others": BLUE}
"""What a bar is -> its colour."""
SEEDS = ("circle", "diamond", "square", "cross", "x", "star", "pentagon", "hexagram", "bowtie", "hourglass")
"""Marker of each seed."""


def runs_with_a_trajectory(given: argparse.Namespace) -> list[RunConfig]:
    """The rule of 12 and 21 broken, and none, by initialisation."""
    axes = {"gamma": list(GAMMAS), "complexity": [1, 0]}
    return runs(given, axes, **{**LONGEST.get(given.preset, {}), "n_checkpoints": N_CHECKPOINTS})


def measure_pairs(courses: Sequence[Course]) -> dict[str, Any]:
    """When each pair is fit: `summary` of pair_fit.py, and the accuracies that it is computed from.

    `fit_steps` of each run are those of the picture: the first with 60 % accuracy.
    """
    return {
        "marked": MARKED,
        "broken": BROKEN,
        "summary": summary(courses),
        "runs": [
            {
                **each.to_dict(),
                "fit_steps": {text(pair): step for pair, step in each.fit_steps(THRESHOLDS[0]).items()},
            }
            for each in courses
        ],
    }


def draw_pairs(courses: Sequence[Course]) -> go.Figure:
    """The step at which each pair first has 60 % accuracy, a bar the mean of the seeds, a point each seed.

    Columns are the smallest and the largest initialisation, rows the broken runs and their control. Where a
    seed has not fit a pair there is no bar but a triangle at the end of that run: later than this.
    """
    trained_at = {each.gamma for each in courses}
    gammas = sorted({min(trained_at), max(trained_at)}, reverse=True)
    kinds = {True: "12 and 21 break the rule", False: "control, all obey"}
    figure = make_subplots(
        rows=2,
        cols=len(gammas),
        shared_xaxes=True,
        subplot_titles=[f"{_name(gamma)}: {what}" for what in kinds.values() for gamma in gammas],
        horizontal_spacing=0.07,
        vertical_spacing=0.12,
    )
    seeds = sorted({each.seed for each in courses})
    for row, broken in enumerate(kinds, start=1):
        for column, gamma in enumerate(gammas, start=1):
            own = [each for each in courses if (each.gamma, each.broken) == (gamma, broken)]
            figure.add_traces(_bars(own, seeds), rows=row, cols=column)
    for name, color in KINDS.items():
        figure.add_bar(x=[None], y=[None], marker_color=color, name=name, row=1, col=1)
    for k, seed in enumerate(seeds):
        marker = {"symbol": SEEDS[k % len(SEEDS)], "color": "black", "size": 7}
        figure.add_scatter(
            x=[None], y=[None], mode="markers", marker=marker, name=f"seed {seed}", row=1, col=1
        )
    figure.update_xaxes(type="category", tickangle=0)
    figure.update_yaxes(rangemode="tozero")
    for column in range(1, len(gammas) + 1):  # one scale for a run and its control
        figure.update_yaxes(matches="y" if column == 1 else f"y{column}", col=column)
    figure.update_xaxes(title="anchor pair", row=2)
    figure.update_yaxes(title=f"steps to {THRESHOLDS[0]:.0%} accuracy", col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.14, "yanchor": "top"}, bargap=0.25)
    figure.update_annotations(font_size=12)
    title = f"When each pair first has {THRESHOLDS[0]:.0%} accuracy on its training data"
    return styled(figure, title, width=180 + 440 * len(gammas), height=640).update_layout(margin_t=80)


def _bars(courses: Sequence[Course], seeds: Sequence[int]) -> list[go.Bar | go.Scatter]:
    """Of the runs that differ in their seed alone."""
    fits = [each.fit_steps(THRESHOLDS[0]) for each in courses]
    pairs = list(fits[0])
    names = [text(pair).replace(",", "") for pair in pairs]
    steps = [[fit[pair] for fit in fits] for pair in pairs]  # [pair][seed]
    known = [[step for step in own if step is not None] for own in steps]
    heights = [sum(own) / len(own) if len(own) == len(fits) else None for own in known]
    bar = go.Bar(x=names, y=heights, marker_color=[KINDS[_kind(pair)] for pair in pairs], showlegend=False)
    traces: list[go.Bar | go.Scatter] = [bar]
    for each, fit in zip(courses, fits, strict=True):
        symbol = SEEDS[seeds.index(each.seed) % len(SEEDS)]
        last = float(each.steps[-1])
        symbols = ["triangle-up-open" if fit[pair] is None else symbol for pair in pairs]
        points = [last if fit[pair] is None else fit[pair] for pair in pairs]
        marker = {"symbol": symbols, "color": "black", "size": 7}
        hover = [f"{text(pair)}, seed {each.seed}" for pair in pairs]
        traces.append(
            go.Scatter(x=names, y=points, mode="markers", marker=marker, hovertext=hover, showlegend=False)
        )
    return traces


def _kind(pair: Pair) -> str:
    return list(KINDS)[0 if pair in BROKEN else 1 if pair in MARKED else 2]


def _name(gamma: float) -> str:
    return f"gamma {gamma:g}{NAMES.get(gamma, '')}"


def main() -> None:
    """Read the command line, train what is missing or read what is stored, measure, draw."""
    parser = options(__doc__, seeds=range(5))
    parser.add_argument("--from-json", type=Path, help="JSON of an earlier run of this script: train nothing")
    given = parser.parse_args()
    if given.from_json:
        courses = [Course.from_dict(run) for run in taken_up(given, given.from_json)["pairs"]["runs"]]
    else:
        courses = [course(cell) for cell in trained(given, runs_with_a_trajectory(given))]
    write(given, "j8_convergence", {"j8b_pairs": draw_pairs(courses)}, {"pairs": measure_pairs(courses)})


if __name__ == "__main__":
    main()
