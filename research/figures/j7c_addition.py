"""Figure 7C of arXiv 2501.08537: addition with a left-out square, over gamma x weight decay.

    python research/figures/j7c_addition.py [--mode reversed] [--seed 0 1 2] [--suffix .png]

Claim: with small initial weights (a large gamma) or a large weight decay a model that never saw the sums of a
square of operands adds there too; with large ones and little decay there is a hole.

Asked at equal steps, and at the first evaluation at which the training sums are fit (.999 of those that are
asked), beside a random split, on which every arm should come near 1: one that does not is undertrained, and
its hole says nothing. The paper gives neither tokens nor sizes; `number` has a token for each number,
`reversed` one for each digit, the answer's last digit first. Most held-out sums of the random split and of ID
have their mirror in training, which helps a model for which order does not matter; --both-orders leaves none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.extras.sweep import Cell, grid
from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.plots.from_specs import figure_of
from anchorlens.plots.side_by_side import side_by_side
from anchorlens.recipes.presets import Parts, preset_parts
from shared import arms
from shared.arms import FIT, add_options, heatmap, means, summary
from shared.both_orders import AdditionBothOrders
from shared.common import options, trained, write

SHOWN = (0.3, 0.5, 0.7)
"""Values of gamma whose planes are drawn, at a weight decay of .01."""
PRESETS = {"number": "addition", "reversed": "addition-reversed"}


def measure(cell: Cell) -> dict[str, Any]:
    """What one cell comes to, at its end and when its training sums were fit.

    The random split has no OOD accuracy: what it leaves out is held out, and its accuracy is ID.
    """
    row = arms.measure(cell, ("split",))
    return row if row["split"] == "square" else row | {"ood": row["id"]}


def planes(cells: Sequence[Cell]) -> list[go.Figure]:
    """The answers over the plane of operands, and against the distance to the border, of some cells."""
    evaluations = [load_checkpoint(cell.path / "ckpt.pt").evaluate() for cell in cells if cell.path]
    labels = [f"gamma {cell.fields['gamma']:g}" for cell in cells]
    by_kind = zip(*(evaluation.figure_specs for evaluation in evaluations), strict=True)
    return [side_by_side([figure_of(figure_spec) for figure_spec in of_kind], labels) for of_kind in by_kind]


def of_both_orders(base: str | Parts) -> Parts:
    """A preset of addition with no mirror of a held-out sum in training."""
    parts = preset_parts(base) if isinstance(base, str) else base
    return {**parts, "task": {**parts["task"], "kind": AdditionBothOrders.kind}}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="addition-reversed")
    parser.add_argument("--mode", default="reversed", choices=list(PRESETS), help="how sums are written")
    add_options(parser, steps=2000)
    parser.add_argument(
        "--control-decay", type=float, nargs="+", default=[0.01], help="weight decays of the random split"
    )
    parser.add_argument("--both-orders", action="store_true", help="hold out (a, b) and (b, a) together")
    given = parser.parse_args()
    shared = {"steps": given.steps, "n_checkpoints": 0}
    if given.mode == "number":
        given.preset = "addition"
    base, seeds = PRESETS[given.mode], {"seed": given.seed}
    if given.both_orders:
        base, given.tag = of_both_orders(base), given.tag or "both_orders"
    square = grid(base, {"gamma": given.gamma, "weight_decay": given.weight_decay, **seeds}, **shared)
    control = grid(
        base, {"gamma": given.gamma, "weight_decay": given.control_decay, **seeds}, split="random", **shared
    )
    wanted = [*square, *control]
    cells = trained(given, wanted)
    rows = [measure(cell) for cell in cells]
    of_square, of_control = ([row for row in rows if row["split"] == split] for split in ("square", "random"))
    found = {
        "OOD accuracy at the end": means(of_square, lambda row: row["ood"]),
        f"OOD accuracy when train >= {FIT}": means(of_square, lambda row: row["at_fit"]["ood"]),
        "train accuracy at the end": means(of_square, lambda row: row["train"]),
        "random split: accuracy on held-out pairs": means(of_control, lambda row: row["ood"]),
    }
    name = f"j7c_addition_{given.mode}"
    drawn = [
        cell
        for cell in cells
        if (cell.fields["weight_decay"], cell.fields["seed"]) == (0.01, given.seed[0])
        and cell.fields["gamma"] in SHOWN
        and cell.fields["split"] == "square"
    ]
    plane, distance = planes(drawn)
    maps = side_by_side([heatmap(title, each) for title, each in found.items()], list(found))
    pictures = {
        name: maps.update_layout(title_text="Addition with a held-out square"),
        f"{name}_plane": plane,
        f"{name}_distance": distance,
    }
    write(
        given,
        name,
        pictures,
        {"mode": given.mode, "steps": given.steps, "means": summary(found), "cells": rows},
    )


if __name__ == "__main__":
    main()
