"""Figure 7A of arXiv 2501.08537: SCAN without composites of `turn left`, over gamma x weight decay and size.

    python research/figures/j7a_scan.py [--seed 0 1 2] [--sizes 420 1000 2000 5000 10000] [--suffix .png]

Claim: small initial weights (a large gamma) with a large weight decay answer more of the left-out commands
than large ones with little decay, at every size of the training set.

Asked of whole answers with the end mark, at equal steps and at the first evaluation at which the training
commands are fit (.999 of those that are asked). The paper gives neither sizes nor gamma nor tokens; a word is
a token here, and a size counts different commands, to which a tenth of copies of `turn left` is added. The
grid is over one size; over sizes the two settings alone are trained. --lr trains the two settings at other
learning rates, so that neither loses for its step size alone.
"""

from __future__ import annotations

from arms import FIT, add_arms, add_options, against_complexity, asked, maps, means, over_sizes, summary
from common import options, write

PRESET, GRID_SIZE = "scan", 2000
SIZES = (420, 1000, 2000, 5000, 10_000)
COPIES = 0.1


def examples_of(n_commands: int) -> int:
    """Training examples of so many different commands, a tenth of them copies of the bare one."""
    return round(n_commands / (1 - COPIES))


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="scan")
    add_options(parser, steps=3000)
    add_arms(parser, sizes=SIZES, rates=(5e-4, 2e-3))
    parser.add_argument("--split", default="turn_left", choices=["turn_left", "jump"])
    given = parser.parse_args()
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
