"""Figure 7B of arXiv 2501.08537: COGS over the size of the training set, at the paper's two settings.

    python research/figures/j7b_cogs.py --data DIR [--seed 0 1 2] [--sizes 1000 5000 10000 20000 24155]

Claim: small initial weights with a large weight decay generalise better than large ones with little decay at
every size, even where both answer more than .99 of the ID test.

The paper gives neither gamma nor all sizes, and its score skips the end mark and cuts long sentences; here a
logical form is right if every word is, its end mark too, and nothing is cut. OOD is the mean over 21 cases,
shown apart: 18 lexical and 3 structural. --gamma and --weight-decay ask a grid at 5,000 sentences as well.
"""

from __future__ import annotations

from shared.arms import (
    FIT,
    add_arms,
    add_options,
    against_complexity,
    asked,
    maps,
    means,
    over_sizes,
    summary,
)
from shared.common import options, write

PRESET, GRID_SIZE = "cogs", 5000
SIZES = (1000, 5000, 10_000, 20_000, 24_155)
SHOWN = {
    "id": "ID exact match",
    "lexical": "mean over 18 lexical cases",
    "structural": "mean over 3 structural cases",
}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="cogs")
    add_options(parser, steps=3000, gammas=(), decays=())
    add_arms(parser, sizes=SIZES, rates=(5e-4, 2e-3))
    parser.add_argument("--data", default="", help="folder of its files; else they are fetched")
    given = parser.parse_args()
    rows = asked(
        given,
        PRESET,
        n_samples=GRID_SIZE,
        sizes=given.sizes,
        measures=("train", "id", "ood", "ood_without_end", "lexical", "structural", "ceiling"),
        fit=FIT,
        data=given.data,
    )
    pictures = {
        f"j7b_cogs_{name}": over_sizes(
            rows.over_size, f"COGS: {title}", lambda row, name=name: row[name], "exact match"
        )
        for name, title in SHOWN.items()
    }
    pictures["j7b_cogs_complexity"] = against_complexity(rows.every)
    found = {
        f"{name} exact match at the end": means(rows.grid, lambda row, name=name: row[name])
        for name in ("lexical", "structural", "id", "train")
    }
    if given.gamma and given.weight_decay:
        pictures["j7b_cogs"] = maps(f"COGS, {GRID_SIZE:,} sentences", found)
    write(given, "j7b_cogs", pictures, {"steps": given.steps, "means": summary(found), "cells": rows.every})


if __name__ == "__main__":
    main()
