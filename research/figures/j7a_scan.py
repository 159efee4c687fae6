"""Figure 7A of arXiv 2501.08537: SCAN without composites of `turn left`, over gamma x weight decay and size.

    python research/figures/j7a_scan.py [--seed 0 1 2] [--sizes 420 1000 2000 5000 10000] [--suffix .png]

Claim: small initial weights (a large gamma) with a large weight decay answer more of the left-out commands
than large ones with little decay, at every size of the training set.

Asked of whole answers with the end mark, at equal steps and at the first evaluation at which the training
commands are fit (.999 of those that are asked). The paper gives neither sizes nor gamma nor tokens; a word is
a token here, and a size counts different commands, to which a tenth of copies of `turn left` is added. The
grid is over one size; over sizes the two settings alone are trained. --lr trains the two settings at other
learning rates, so that neither loses for its step size alone.

OOD goes with ID, so that the two settings compare models that know the trained kind of command with models
that do not. --equal-id asks gamma alone: two gammas at one weight decay over more and more commands, each at
the smallest size at which every seed has an ID of .95.
"""

from __future__ import annotations

import argparse

import plotly.graph_objects as go

from anchorlens import plots
from anchorlens.extras.sweep import grid
from shared.arms import (
    FIT,
    add_arms,
    add_options,
    against_complexity,
    asked,
    equal_id,
    maps,
    means,
    measure,
    over_sizes,
    summary,
)
from shared.common import options, trained, write

PRESET, GRID_SIZE = "scan", 2000
EQUAL_ID_GAMMAS, EQUAL_ID_DECAY = (0.5, 0.7), 0.01
"""What is compared at equal ID."""
EQUAL_ID_SIZES, EQUAL_ID_SEEDS = (2000, 3000, 5000), range(5)
SIZES = (420, 1000, 2000, 5000, 10_000)
COPIES = 0.1


def examples_of(n_commands: int) -> int:
    """Training examples of so many different commands, a tenth of them copies of the bare one."""
    return round(n_commands / (1 - COPIES))


def at_equal_id(given: argparse.Namespace) -> None:
    """Train what is missing of two gammas over sizes, and write what they answer at equal ID."""
    given.seed = list(EQUAL_ID_SEEDS)
    wanted = grid(
        PRESET,
        {"gamma": EQUAL_ID_GAMMAS, "n_samples": [*map(examples_of, EQUAL_ID_SIZES)], "seed": given.seed},
        weight_decay=EQUAL_ID_DECAY,
        steps=given.steps,
        n_checkpoints=0,
        split=given.split,
    )
    cells = trained(given, wanted)
    rows = [measure(cell, ("n_samples", "lr")) for cell in cells]
    figure = plots.styled(go.Figure(), "SCAN at equal ID")
    for gamma in EQUAL_ID_GAMMAS:
        own = [row for row in rows if row["gamma"] == gamma]
        figure.add_scatter(
            x=[r["id"] for r in own], y=[r["ood"] for r in own], mode="markers", name=f"gamma {gamma:g}"
        )
    figure.update_xaxes(title="ID exact match").update_yaxes(title="OOD exact match")
    numbers = {"split": given.split, "steps": given.steps, "equal_id": equal_id(rows), "cells": rows}
    write(given, f"j7a_equal_id_{given.split}", figure, numbers)


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="scan")
    add_options(parser, steps=3000)
    add_arms(parser, sizes=SIZES, rates=(5e-4, 2e-3))
    parser.add_argument("--split", default="turn_left", choices=["turn_left", "jump"])
    parser.add_argument("--equal-id", action="store_true", help="two gammas at equal ID, five seeds")
    given = parser.parse_args()
    if given.equal_id:
        at_equal_id(given)
        return
    rows = asked(
        given,
        PRESET,
        n_samples=examples_of(GRID_SIZE),
        sizes=[examples_of(n) for n in given.sizes],
        measures=("train", "id", "ood", "ood_without_end"),
        fit=FIT,
        split=given.split,
    )
    found = {
        "OOD exact match at the end": means(rows.grid, lambda row: row["ood"]),
        f"OOD exact match when train >= {FIT}": means(rows.grid, lambda row: row["at_fit"]["ood"]),
        "ID exact match at the end": means(rows.grid, lambda row: row["id"]),
        "train exact match at the end": means(rows.grid, lambda row: row["train"]),
    }
    name = f"j7a_scan_{given.split}"
    pictures = {
        name: maps(f"SCAN, {GRID_SIZE:,} commands, {given.split} left out", found),
        f"{name}_complexity": against_complexity(rows.grid),
        f"{name}_sizes": over_sizes(
            rows.over_size,
            "SCAN over the size of the training set",
            lambda row: row["ood"],
            "OOD exact match",
        ),
    }
    numbers = {"split": given.split, "steps": given.steps, "means": summary(found), "cells": rows.every}
    write(given, name, pictures, numbers)


if __name__ == "__main__":
    main()
