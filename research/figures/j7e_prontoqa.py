"""Figure 7E of arXiv 2501.08537: PrOntoQA over the size of the training set, at the paper's two settings.

    python research/figures/j7e_prontoqa.py [--seed 0 1 2] [--sizes 500 1000 2000 5000 10000 20000 50000]

Claim: with small initial weights and a large weight decay a model learns faster and errs less; with large
ones the number of updates first grows with the size and then falls, and the error falls with it.

Speed is the number of updates until .99 of the training questions are answered; a run that does not get there
is counted as such, and has no speed. The paper says neither which ontologies nor how many steps: both kinds
are asked beside the shortcuts that need no model (docs/api/task.md), and --hops N trains questions of 1 to N.
--says deduction asks for the deduction before the label. With --gamma and --weight-decay, and --sizes without
a value, other settings are trained.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from shared.arms import ARMS, add_arms, add_options, asked, over_sizes
from shared.common import options, write

PRESET, FIT = "prontoqa", 0.99
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
LEARNT_FROM = 200_000
"""Questions of a grid of gamma and weight decay without sizes."""
MEASURES = ("train", "id", "ood", "other", "degree", "polarity", "majority", "solver")


def error(row: dict[str, Any]) -> float:
    """Share of fresh questions of the trained kind that are answered wrong."""
    return 1 - row["id"]


def updates(row: dict[str, Any]) -> int | None:
    """Updates until the training questions are answered; None if they never were."""
    return row["at_fit"]["step"]


def censored(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Setting and size -> runs, and how many of them never fit their training questions."""
    there = Counter((row["gamma"], row["weight_decay"], row["n_samples"]) for row in rows)
    never = Counter(
        (row["gamma"], row["weight_decay"], row["n_samples"]) for row in rows if updates(row) is None
    )
    return [
        {"setting": ARMS[key[:2]], "n_samples": key[2], "runs": n, "never fit": never[key]}
        for key, n in sorted(there.items())
    ]


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="prontoqa")
    add_options(parser, steps=4000, gammas=(), decays=())
    add_arms(parser, sizes=SIZES, rates=())
    parser.add_argument("--ontology", default="official", choices=["official", "balanced"])
    parser.add_argument("--hops", type=int, default=1, help="most steps of a trained deduction")
    parser.add_argument("--loss-on", default="label", choices=["label", "sequence"])
    parser.add_argument("--says", default="label", choices=["label", "deduction"], help="what an answer is")
    given = parser.parse_args()
    rows = asked(
        given,
        PRESET,
        n_samples=max(given.sizes, default=LEARNT_FROM),
        sizes=given.sizes,
        measures=MEASURES,
        fit=FIT,
        ontology=given.ontology,
        most_hops=given.hops,
        loss_on=given.loss_on,
        says=given.says,
        eval_every=100,
    )
    name = f"j7e_{'prontoqa' if given.says == 'label' else 'deduction'}_{given.ontology}"
    about = f"PrOntoQA, {given.ontology}, {given.says}, up to {given.hops} step{'s' * (given.hops > 1)}"
    pictures = {}
    if len(given.sizes) > 1:
        never = sum(updates(row) is None for row in rows.over_size)
        left_out = f" ({never} of {len(rows.over_size)} runs never fit)" if never else ""
        pictures[f"{name}_error"] = over_sizes(
            rows.over_size, f"{about}: error", error, "error on fresh questions"
        )
        pictures[f"{name}_speed"] = over_sizes(
            rows.over_size, f"{about}: speed{left_out}", updates, f"updates until train >= {FIT}", share=False
        )
    numbers = {
        "ontology": given.ontology,
        "most_hops": given.hops,
        "loss_on": given.loss_on,
        "says": given.says,
        "steps": given.steps,
        "never_fit": censored(rows.over_size),
        "cells": rows.every,
    }
    write(given, name, pictures, numbers)


if __name__ == "__main__":
    main()
