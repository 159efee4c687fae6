"""Figure 2 of arXiv 2405.05409: which solution is found, over initialisation and depth.

    python research/figures/c2_gamma_depth.py [--seed 0 1] [--suffix .png]
    python research/figures/c2_gamma_depth.py --from-json docs/images/figures/c2_gamma_depth_postnorm.json

Claim: on the unseen pair (4, 3) models with a small initialisation (large gamma) find the inferential
solution (x-10), with a large one the symmetric solution (x-6, what the mirrored pair is trained on). A run
has a solution if it answers more than half by it, else it has none.

A mean over positions of the key can hide two mechanisms, one where the second anchor is the last token and
one elsewhere: `c2_by_position` has every run's answers at each, the maps say how many runs are mixed so.

With several learning rates (`--set lr=4e-4,8e-4`) each map stands for its own best one, as in the paper: the
symmetric map for the rate with the most symmetric answers, the inferential map for that with the most
inferential ones, of the rates at which a seed fits its training data. With --from-json nothing is trained:
all that follows from the runs is counted anew from those of an earlier JSON, and drawn.

The default, `quick` for 1,000 steps over five gammas, two depths and two seeds, takes about 6 minutes on
one core, half of that on two. `--preset paper-2l1h --depth 2 3 4 5 6 7` is the paper's scale.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.extras.sweep import Cell
from anchorlens.plots import COSINE, SHARE, styled
from shared import common
from shared.readings import MOST
from shared.solutions import GAMMAS, answers, conflict_runs

SMALL, LARGE = 0.7, 0.5
"""The claim is held against gammas of at least `SMALL`, and of at most `LARGE`."""
FIT = 0.9
"""Train accuracy below which a run says nothing about solutions, as in the definition of the phases."""
MIXED = "mixed by position"
DRAWN = {"inferential": "inferential solution, x-10", "symmetric": "symmetric solution, x-6"}


def measure(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Every run's answers to (4, 3)."""
    return [
        {
            "gamma": cell.run.model_config.gamma,
            "depth": cell.run.model_config.n_layers,
            "seed": cell.run.train_config.seed,
            "lr": cell.run.train_config.lr,
            **answers(cell),
            "cell": cell.id,
        }
        for cell in cells
    ]


def counted(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What follows from the runs.

    `best`: for each solution the run of the best learning rate of every gamma, depth and seed, as its place
    in `runs`. `small_initialisation` and `large_initialisation`: what share of those that have fit has the
    solution that the paper finds there; None where there is none. `solutions` counts the runs that have fit
    by the solution that they have at every position of the key, or at some.
    """
    fit = [run for run in runs if run["train"] >= FIT]
    best = {solution: best_rates(runs, solution) for solution in DRAWN}

    def share(solution: str, there: Callable[[float], bool]) -> float | None:
        own = [runs[k] for k in best[solution] if there(runs[k]["gamma"]) and runs[k]["train"] >= FIT]
        return statistics.fmean(run[solution] > MOST for run in own) if own else None

    return {
        "runs": list(runs),
        "best": best,
        "n_runs": len(runs),
        "n_underfit": len(runs) - len(fit),
        "solutions": dict(Counter(run["solution"] for run in fit if run.get("solution"))),
        "small_initialisation": {
            "gamma_from": SMALL,
            "inferential": share("inferential", lambda gamma: gamma >= SMALL),
        },
        "large_initialisation": {
            "gamma_to": LARGE,
            "symmetric": share("symmetric", lambda gamma: gamma <= LARGE),
        },
        "means": {
            solution: {
                str(depth): {
                    str(gamma): _mean([runs[k] for k in chosen], solution, depth, gamma)
                    for gamma in _values(runs, "gamma")
                }
                for depth in _values(runs, "depth")
            }
            for solution, chosen in best.items()
        },
    }


def best_rates(runs: Sequence[dict[str, Any]], solution: str) -> list[int]:
    """Of every gamma, depth and seed the place of the run of the best learning rate, in the order given.

    >>> several = [{"inferential": i, "train": t} for i, t in ((0.2, 1.0), (0.6, 0.95), (0.9, 0.3))]
    >>> best_rates([{"gamma": 0.8, "depth": 2, "seed": 0, **run} for run in several], "inferential")
    [1]
    """
    found: dict[tuple[Any, ...], int] = {}
    for k, run in enumerate(runs):
        place = (run["gamma"], run["depth"], run["seed"])
        if place not in found or _rank(run, solution) > _rank(runs[found[place]], solution):
            found[place] = k
    return list(found.values())


def _rank(run: dict[str, Any], solution: str) -> tuple[bool, float]:
    return run["train"] >= FIT, run[solution]


def draw(numbers: dict[str, Any]) -> go.Figure:
    """Two maps, inferential and symmetric accuracy over gamma and depth, means of the seeds."""
    runs = numbers["runs"]
    gammas, depths = _values(runs, "gamma"), _values(runs, "depth")
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=list(DRAWN.values()))
    for column, solution in enumerate(DRAWN, start=1):
        at = numbers["means"][solution]
        best = [runs[k] for k in numbers["best"][solution]]
        means = [[at[str(depth)][str(gamma)] for gamma in gammas] for depth in depths]
        text = [
            [
                "<br>".join([f"{value:.2f}", *_remarks(best, depth, gamma)])
                for gamma, value in zip(gammas, row, strict=True)
            ]
            for depth, row in zip(depths, means, strict=True)
        ]
        heatmap = go.Heatmap(
            x=[f"{gamma:g}" for gamma in gammas],
            y=[str(depth) for depth in depths],
            z=means,
            text=text,
            texttemplate="%{text}",
            colorbar={"title": "accuracy<br>on (4, 3)"},
            showscale=column == len(DRAWN),
            xgap=2,
            ygap=2,
            **SHARE,
        )
        figure.add_trace(heatmap, row=1, col=column)
        figure.update_xaxes(title="initialisation rate gamma", type="category", row=1, col=column)
    figure.update_yaxes(type="category")
    figure.update_yaxes(title="layers", row=1, col=1)
    figure.update_annotations(font_size=12)
    seeds = len(_values(runs, "seed"))
    title = f"Answers to the unseen pair (4, 3), mean of {seeds} seed{'s' if seeds > 1 else ''}"
    if len(numbers["best"]["symmetric"]) < len(runs):
        title += ", each map at its best learning rates"
    figure = styled(figure, title, width=900, height=190 + 70 * len(depths))
    return figure.update_layout(margin_t=80)


def draw_by_position(numbers: dict[str, Any]) -> go.Figure | None:
    """Every run's answers at each position of the key: +1 (red) inferential, -1 (blue) symmetric.

    None where no run has kept them.
    """
    runs = sorted(
        (run for run in numbers["runs"] if run.get("by_position")),
        key=lambda run: (run["gamma"], run["depth"], run["seed"], run["lr"]),
    )
    if not runs:
        return None
    rows = [
        f"gamma {run['gamma']:g}, {run['depth']} layers, seed {run['seed']}, lr {run['lr']:g}: "
        + (_outcome(run) or "no solution")
        for run in runs
    ]
    difference = [
        [one["inferential"]["value"] - one["symmetric"]["value"] for one in run["by_position"]]
        for run in runs
    ]
    heatmap = go.Heatmap(
        x=[one["position"] for one in runs[0]["by_position"]],
        y=rows,
        z=difference,
        colorbar={"title": "share<br>x-10<br>minus<br>share<br>x-6"},
        ygap=1,
        **COSINE,
    )
    figure = go.Figure(heatmap)
    figure.update_xaxes(title="position of the key", dtick=1)
    figure.update_yaxes(autorange="reversed")
    title = "Answers to (4, 3) by position of the key (red: x-10, blue: x-6)"
    figure = styled(figure, title, width=810, height=max(340, 160 + 18 * len(runs)))
    return figure.update_layout(margin_l=340)


def _values(runs: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return sorted({run[name] for run in runs})


def _mean(runs: Sequence[dict[str, Any]], name: str, depth: int, gamma: float) -> float:
    return statistics.fmean(run[name] for run in runs if (run["depth"], run["gamma"]) == (depth, gamma))


def _remarks(runs: Sequence[dict[str, Any]], depth: int, gamma: float) -> list[str]:
    """How many runs of a place have not fit their data, and how many of the others are mixed by position."""
    here = [_outcome(run) for run in runs if (run["depth"], run["gamma"]) == (depth, gamma)]
    counts = {"underfit": here.count("underfit"), "mixed": here.count(MIXED)}
    return [f"{n} {name}" for name, n in counts.items() if n]


def _outcome(run: dict[str, Any]) -> str | None:
    return "underfit" if run["train"] < FIT else run.get("solution")


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = common.options(__doc__)
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    parser.add_argument("--depth", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--from-json", type=Path, help="JSON of an earlier run of this script: train nothing")
    given = parser.parse_args()
    if given.from_json:
        runs = common.taken_up(given, given.from_json)["runs"]
    else:
        runs = measure(
            common.trained(given, conflict_runs(given, {"n_layers": given.depth, "gamma": given.gamma}))
        )
    numbers = counted(runs)
    pictures = {"c2_gamma_depth": draw(numbers), "c2_by_position": draw_by_position(numbers)}
    drawn = {name: figure for name, figure in pictures.items() if figure is not None}
    common.write(given, "c2_gamma_depth", drawn, numbers)


if __name__ == "__main__":
    main()
