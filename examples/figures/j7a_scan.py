"""Figure 7A of arXiv 2501.08537: SCAN without composites of `turn left`, over gamma x weight decay and size.

    python examples/figures/j7a_scan.py [--seed 0 1 2] [--sizes 420 1000 2000 5000 10000] [--suffix .png]

Claim: small initial weights (a large gamma) with a large weight decay answer more of the left-out commands
than large ones with little decay, at every size of the training set.

Asked of whole answers with the end mark, at equal steps and at the first evaluation at which the training
commands are fit (.999 of those that are asked). The paper gives neither sizes nor gamma nor tokens; a word is
a token here, and a size counts different commands, to which a tenth of copies of `turn left` is added. The
grid is over one size; over sizes the two settings alone are trained. --lr trains the two settings at other
learning rates, so that neither loses for its step size alone.
"""

from __future__ import annotations

from anchorlens.figures.side_by_side import side_by_side
from anchorlens.sweep import grid
from arms import ARMS, FIT, add_options, against_complexity, heatmap, means, measure, over_sizes, summary
from common import as_trained, options, trained, write

PRESET, GRID_SIZE = "scan", 2000
SIZES = (420, 1000, 2000, 5000, 10_000)
COPIES = 0.1


def examples_of(n_commands: int) -> int:
    """Training examples of so many different commands, a tenth of them copies of the bare one."""
    return round(n_commands / (1 - COPIES))


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2))
    add_options(parser, steps=3000)
    parser.add_argument("--split", default="turn_left", choices=["turn_left", "jump"])
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="commands, of two settings")
    parser.add_argument(
        "--lr", type=float, nargs="*", default=[5e-4, 2e-3], help="further rates, of two settings"
    )
    given = parser.parse_args()
    shared = {"steps": given.steps, "split": given.split, "n_checkpoints": 0}
    axes = {"gamma": given.gamma, "weight_decay": given.weight_decay, "seed": given.seed}
    squares = grid(PRESET, axes, n_samples=examples_of(GRID_SIZE), **shared)
    sizes = [examples_of(n) for n in given.sizes]
    seeds = {"seed": given.seed}
    two = [{"gamma": [gamma], "weight_decay": [decay], **seeds} for gamma, decay in ARMS]
    over_size = [run for arm in two if sizes for run in grid(PRESET, {**arm, "n_samples": sizes}, **shared)]
    over_rate = [
        run
        for arm in two
        if given.lr
        for run in grid(PRESET, {**arm, "lr": given.lr}, n_samples=examples_of(GRID_SIZE), **shared)
    ]
    wanted = list(dict.fromkeys([*squares, *over_size, *over_rate]))
    cells = as_trained(given, wanted) if given.as_trained else trained(given, wanted)
    rows = [measure(cell, ("n_samples", "lr"), ("train", "id", "ood", "ood_without_end")) for cell in cells]
    usual = [row for row in rows if row["lr"] == squares[0].train.lr]
    of_grid = [row for row in usual if row["n_samples"] == examples_of(GRID_SIZE)]
    found = {
        "OOD exact match at the end": means(of_grid, lambda row: row["ood"]),
        f"OOD exact match when train >= {FIT}": means(of_grid, lambda row: row["at_fit"]["ood"]),
        "ID exact match at the end": means(of_grid, lambda row: row["id"]),
        "train exact match at the end": means(of_grid, lambda row: row["train"]),
    }
    name = f"j7a_scan_{given.split}"
    maps = side_by_side([heatmap(title, each) for title, each in found.items()], list(found))
    pictures = {
        name: maps.update_layout(title_text=f"SCAN, {GRID_SIZE:,} commands, {given.split} left out"),
        f"{name}_complexity": against_complexity(of_grid),
    }
    if sizes:
        pictures[f"{name}_sizes"] = over_sizes(usual, "n_samples", "SCAN over the size of the training set")
    numbers = {"split": given.split, "steps": given.steps, "means": summary(found), "cells": rows}
    write(given, name, pictures, numbers)


if __name__ == "__main__":
    main()
