"""Figures 8A and 8B of arXiv 2501.08537: how long training takes when targets break the rules.

    python examples/figures/j8_convergence.py [--seed 0 1] [--suffix .png]

Claims. With a small initialisation a model needs the more epochs to fit its training data (a loss of .05)
the more groups of anchor pairs have a target that no single-anchor functions explain; with a large one
about as many for any (8A). Where one group breaks the rules, a small initialisation fits it after all
others, a large one along with them (8B).

8A: reasoning complexity k = 0..6 gives the first k symmetric groups a wrong but symmetric target; runs end
when the loss is reached, and those that never reach it are censored: open triangles, None in the numbers.
Its `quick` cells are those of c6_complexity.py with two layers. 8B: complexity 1, which breaks the group
12, and as a control complexity 0, in which the same group obeys. A group is fit from the step on at which
both its pairs stay at an accuracy of .90 or more on their training sequences, linear between two
checkpoints, and censored where they do not get there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.figures import BLUE, ORANGE, styled
from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep import Cell
from c6_complexity import GAMMAS, LARGE_GAMMA, LONGEST, SMALL_GAMMA
from common import options, runs, trained, write
from complexity import LOSS, draw, numbers, time_of
from pair_fit import FIT, Course, compared, course

NAMES = {SMALL_GAMMA: " (small initialisation)", LARGE_GAMMA: " (large initialisation)"}
COMPLEXITIES = tuple(range(7))
BROKEN = (1, 2)
"""The group that complexity 1 breaks."""
N_CHECKPOINTS = 40
FITTED: Mapping[str, Any] = {"symbol": "line-ns-open", "size": 16, "line_width": 2}
NOT_FIT: Mapping[str, Any] = {"symbol": "triangle-right-open", "size": 9}
QUIET = 0.1
"""Accuracy up to which nothing happens yet: the picture begins where the first group leaves it."""


def runs_to_loss(given: argparse.Namespace) -> list[RunConfig]:
    """8A: complexity by initialisation, each trained to the loss."""
    axes = {"gamma": list(GAMMAS), "complexity": COMPLEXITIES}
    longest = LONGEST.get(given.preset, {})
    return runs(given, axes, **{**longest, "stop_at_loss": LOSS, "n_checkpoints": 0})


def runs_with_a_trajectory(given: argparse.Namespace) -> list[RunConfig]:
    """8B: one group broken, and none, by initialisation."""
    axes = {"gamma": list(GAMMAS), "complexity": [1, 0]}
    return runs(given, axes, n_checkpoints=N_CHECKPOINTS)


def measure_complexity(cells: Sequence[Cell]) -> tuple[dict[str, Any], go.Figure]:
    """Epochs to the loss over complexity, an initialisation a line."""
    times = [time_of(cell, "", _name(cell)) for cell in cells]
    picture = draw(times, f"How long it takes to a training loss of {LOSS:g}").update_layout(width=720)
    return {"loss": LOSS, **numbers(times)}, picture


def measure_pairs(courses: Sequence[Course]) -> dict[str, Any]:
    """When each group is fit, and the group that breaks the rules against the others.

    `summary`: for each gamma, with the group broken and (control) not: of how many of the other
    groups, over all runs, it is known that they are fit before it, and the ratios of its step to theirs.
    """
    listed = []
    for each in courses:
        last = int(each.steps[-1])
        listed.append(
            {
                "cell": each.cell.id,
                "gamma": each.cell.run.model.gamma,
                "seed": each.cell.run.train.seed,
                "broken": BROKEN in each.broken,
                "last_step": last,
                **compared(each.fit_steps(), BROKEN, last),
                "fit_steps": {_text(group): step for group, step in each.fit_steps().items()},
                "steps": each.steps,
                "accuracy": {
                    _text(pair): each.accuracy[:, column].round(3) for column, pair in enumerate(each.pairs)
                },
            }
        )
    summary = []
    for gamma, broken in dict.fromkeys((run["gamma"], run["broken"]) for run in listed):
        own = [run for run in listed if (run["gamma"], run["broken"]) == (gamma, broken)]
        summary.append(
            {
                "gamma": gamma,
                "broken": broken,
                "n_others_before": sum(run["n_others_before"] for run in own),
                "of": sum(run["of"] for run in own),
                "ratio_by_seed": {run["seed"]: run["ratio"] for run in own},
                "seeds_with_a_lower_bound": [run["seed"] for run in own if run["ratio_is_lower_bound"]],
            }
        )
    return {"group": _text(BROKEN), "summary": summary, "runs": listed}


def draw_pairs(courses: Sequence[Course]) -> go.Figure:
    """Accuracy of every group over the step, all seeds; a tick where it is fit, a triangle if it is not."""
    columns = list(dict.fromkeys(_name(each.cell) for each in courses))
    kinds = [True, False]
    titles = [
        f"{name.split(' (')[0]}: 12 " + ("breaks the rules" if broken else "obeys (control)")
        for broken in kinds
        for name in columns
    ]
    figure = make_subplots(
        rows=2,
        cols=len(columns),
        shared_xaxes=True,
        shared_yaxes=True,
        subplot_titles=titles,
        horizontal_spacing=0.05,
        vertical_spacing=0.12,
    )
    for each in courses:
        row = kinds.index(BROKEN in each.broken) + 1
        figure.add_traces(list(_lines(each)), rows=row, cols=columns.index(_name(each.cell)) + 1)
    for name, color in ((f"group {_text(BROKEN)}", ORANGE), ("the other groups", BLUE)):
        figure.add_scatter(x=[None], y=[None], mode="lines", line_color=color, name=name, row=1, col=1)
    for name, marker in (
        ("fit from here on", FITTED),
        ("not fit: later than the run", NOT_FIT),
    ):
        marker = {**marker, "color": "black"}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, row=1, col=1)
    first = min(each.steps[(each.accuracy > QUIET).any(axis=1).argmax()] for each in courses)
    last = max(each.steps[-1] for each in courses)
    figure.update_xaxes(
        type="log",
        range=[math.log10(max(first, 1)) - 0.1, math.log10(last) + 0.05],
        tickvals=[digit * 10**power for power in range(7) for digit in (1, 2, 5)],
    )
    figure.update_xaxes(title="training step", row=2)
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="accuracy on training data", col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.12, "yanchor": "top"})
    figure.update_annotations(font_size=12)
    title = "When each group of mirrored pairs is fit, a line a group and seed"
    return styled(figure, title, width=180 + 360 * len(columns), height=680).update_layout(margin_t=80)


def _lines(each: Course) -> list[go.Scatter]:
    """Of one run: a line for each group, with its mark, the one that breaks the rules last, on top."""
    traces = []
    from_one = each.steps > 0
    steps = each.fit_steps()
    for group, columns in sorted(each.groups().items(), key=lambda item: item[0] == BROKEN):
        color = ORANGE if group == BROKEN else BLUE
        accuracy = each.accuracy[:, columns].min(axis=1)
        line = {"color": color, "width": 2 if group == BROKEN else 1}
        hover = f"{_text(group)}, seed {each.cell.run.train.seed}"
        traces.append(go.Scatter(x=each.steps[from_one], y=accuracy[from_one], mode="lines", line=line))
        step = steps[group]
        marker = {**(NOT_FIT if step is None else FITTED), "color": color}
        at = (each.steps[-1], accuracy[-1]) if step is None else (step, FIT)
        traces.append(go.Scatter(x=[at[0]], y=[at[1]], mode="markers", marker=marker))
        for trace in traces[-2:]:
            trace.update(hovertext=hover, showlegend=False)
    return traces


def _name(cell: Cell) -> str:
    gamma = cell.run.model.gamma
    return f"gamma {gamma:g}{NAMES.get(gamma, '')}"


def _text(pair: Sequence[int]) -> str:
    return ",".join(map(str, pair))


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = options(__doc__).parse_args()
    to_loss, with_trajectory = runs_to_loss(given), runs_with_a_trajectory(given)
    cells = trained(given, [*to_loss, *with_trajectory])
    times, over_complexity = measure_complexity(cells[: len(to_loss)])
    courses = [course(cell) for cell in cells[len(to_loss) :]]
    pictures = {"j8a_complexity": over_complexity, "j8b_pairs": draw_pairs(courses)}
    write(given, "j8_convergence", pictures, {"complexity": times, "pairs": measure_pairs(courses)})


if __name__ == "__main__":
    main()
