"""Figure 6 of arXiv 2405.05409: how long training takes, over the reasoning complexity of the data.

    python examples/figures/c6_complexity.py [--seed 0 1] [--suffix .png]

Claim: with a small initialisation a model needs the longer to fit its training data (a loss of .05) the more
groups of anchor pairs have a target that no single-anchor functions explain; with a large one it needs about
as long for any.

Reasoning complexity k = 0..6 gives the first k symmetric groups a wrong but symmetric target. Time is in
passes over the training set; runs end when the loss is reached, and those that never reach it are censored
(open triangles; None in the numbers). The default trains 56 cells of up to 1,500 steps.
"""

from __future__ import annotations

import argparse

import common
from anchorlens.presets import RunConfig
from anchorlens.sweep import Cell
from complexity import LOSS, Time, draw, numbers, time_of
from solutions import recipe

SMALL_GAMMA, LARGE_GAMMA = 0.8, 0.5
LONGEST = {"quick": {"steps": 1500}}
"""How long a run of the default lasts at most; those of the papers' presets, their 210 epochs."""


def wanted(given: argparse.Namespace) -> list[RunConfig]:
    """Complexity by initialisation by depth."""
    axes = {
        "gamma": [given.small_gamma, given.large_gamma],
        "n_layers": given.depth,
        "complexity": given.complexity,
    }
    fields = {**recipe(given), **LONGEST.get(given.preset, {}), "stop_at_loss": LOSS, "n_checkpoints": 0}
    return common.runs(given, axes, **fields)


def measure(cells: list[Cell], small_gamma: float) -> list[Time]:
    """The time of every run; initialisations are the panels, depths the lines."""
    times = []
    for cell in cells:
        model = cell.run.model
        which = "small" if model.gamma == small_gamma else "large"
        panel = f"{which} initialisation (gamma {model.gamma:g})"
        times.append(time_of(cell, panel, f"{model.n_layers} layers"))
    return times


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = common.options(__doc__)
    parser.add_argument("--complexity", type=int, nargs="+", default=list(range(7)))
    parser.add_argument("--depth", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--small-gamma", type=float, default=SMALL_GAMMA)
    parser.add_argument("--large-gamma", type=float, default=LARGE_GAMMA)
    given = parser.parse_args()
    times = measure(common.trained(given, wanted(given)), given.small_gamma)
    picture = draw(times, f"How long it takes to a training loss of {LOSS:g}")
    common.write(given, "c6_complexity", picture, {"loss": LOSS, **numbers(times)})


if __name__ == "__main__":
    main()
