"""Figures 6 of arXiv 2405.05409 and 8A of 2501.08537: how long training takes over reasoning complexity.

    python research/figures/c6_complexity.py [--seed 0 1 2 3 4] [--suffix .png]

Claim: with a small initialisation a model needs the longer to fit its training data (a loss of .05) the more
groups of anchor pairs have a target that no single-anchor functions explain; with a large one it needs about
as long for any.

Reasoning complexity k = 0..6 gives the first k symmetric groups a wrong but symmetric target. Time is in
passes over the training set; runs end when the loss is reached, and those that never reach it are censored
(open triangles; None in the numbers).

Which initialisation is large depends on the scale: gamma .5 as in the other figures, and .4; both are drawn,
with the accuracy on held-out keys in the numbers. On 5,000 samples a model memorises at gamma .4 (the preset
`phase1`) and generalises in part at .5, so that neither can be asked there. The default trains 210 cells of
up to 3,000 steps on 100,000 samples.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from anchorlens.extras.sweep import Cell
from anchorlens.recipes.run_config import RunConfig
from shared import common
from shared.complexity import LOSS, Time, draw, numbers, time_of
from shared.solutions import QUICK, recipe

SMALL_GAMMA, LARGE_GAMMA = 0.8, 0.4
GAMMAS = (SMALL_GAMMA, 0.5, LARGE_GAMMA)
LONGEST = {"quick": {"steps": 3000, **QUICK}}
"""How long a run of the default lasts at most, and its samples; the papers' presets have 210 epochs."""


def wanted(given: argparse.Namespace) -> list[RunConfig]:
    """Complexity by initialisation by depth."""
    axes = {
        "gamma": given.gamma,
        "n_layers": given.depth,
        "complexity": given.complexity,
    }
    fields = {**recipe(given), **LONGEST.get(given.preset, {}), "stop_at_loss": LOSS, "n_checkpoints": 0}
    return common.runs(given, axes, **fields)


def panel(cell: Cell) -> str:
    """The initialisation."""
    return f"gamma {cell.run.model_config.gamma:g}"


def measure(cells: Sequence[Cell]) -> list[Time]:
    """The time of every run; initialisations are the panels, depths the lines."""
    return [time_of(cell, panel(cell), f"{cell.run.model_config.n_layers} layers") for cell in cells]


def id_accuracy(cells: Sequence[Cell]) -> dict[str, float]:
    """Accuracy on held-out keys where training ended, 0..1: panel -> mean of its runs."""
    panels = dict.fromkeys(panel(cell) for cell in cells)
    return {
        name: statistics.fmean(cell.numbers["id"] for cell in cells if panel(cell) == name) for name in panels
    }


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = common.options(__doc__, seeds=range(5))
    parser.add_argument("--complexity", type=int, nargs="+", default=list(range(7)))
    parser.add_argument("--depth", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    given = parser.parse_args()
    cells = common.trained(given, wanted(given))
    times = measure(cells)
    title = f"How long it takes to a training loss of {LOSS:g} (a larger gamma: smaller initial weights)"
    content = {"loss": LOSS, "id_accuracy": id_accuracy(cells), **numbers(times)}
    common.write(given, "c6_complexity", draw(times, title), content)


if __name__ == "__main__":
    main()
