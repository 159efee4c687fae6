"""Figure 7C of arXiv 2501.08537: addition with a left-out square, over gamma x weight decay.

    python examples/figures/j7c_addition.py [--mode reversed] [--seed 0 1 2] [--suffix .png]

Claim: with small initial weights (a large gamma) or a large weight decay a model that never saw the sums of a
square of operands adds there too; with large ones and little decay there is a hole.

Asked at equal steps, and at the first evaluation at which the training sums are fit (.999 of those that are
asked), beside a random split, on which every arm should come near 1: one that does not is undertrained, and
its hole says nothing. The paper gives neither tokens nor sizes; `number` has a token for each number,
`reversed` one for each digit, the answer's last digit first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from anchorlens.figures import SHARE, styled
from anchorlens.figures.side_by_side import side_by_side
from anchorlens.figures.sketches import drawn_sketch
from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.sweep import Cell, grid
from common import as_trained, options, trained, write

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DECAYS = (0.0, 0.01, 0.1, 1.0)
SHOWN = (0.3, 0.5, 0.7)
"""Values of gamma whose planes are drawn, at a weight decay of .01."""
PRESETS = {"number": "addition", "reversed": "addition-reversed"}
FIT = 0.999
"""Train accuracy from which on the training sums count as fit."""

Square = tuple[float, float]


def at_fit(cell: Cell) -> dict[str, Any]:
    """The first evaluation at which the training sums are fit: step and OOD accuracy, None without one."""
    lines = (line for line in cell.log() if line.get("train_accuracy", 0.0) >= FIT)
    line = next(lines, {})
    return {"step": line.get("step"), "ood": line.get("ood_accuracy")}


def measure(cell: Cell) -> dict[str, Any]:
    """What one cell comes to, at its end and when its training sums were fit."""
    numbers = {name: cell.numbers[name] for name in ("train", "id", "ood", "label")}
    fields = {name: cell.fields[name] for name in ("gamma", "weight_decay", "seed", "split")}
    return {**fields, **numbers, "at_fit": at_fit(cell)}


def means(
    rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]
) -> dict[Square, Any]:
    """(gamma, weight decay) -> the mean over the seeds that have the value, and how many have it."""
    found: dict[Square, list[float]] = {}
    for row in rows:
        values = found.setdefault((row["gamma"], row["weight_decay"]), [])
        if (one := value(row)) is not None:
            values.append(one)
    return {square: (fmean(values) if values else None, len(values)) for square, values in found.items()}


def heatmap(title: str, found: dict[Square, Any]) -> go.Figure:
    """A number over gamma and weight decay, written in each square."""
    gammas, decays = (sorted({square[axis] for square in found}) for axis in (0, 1))
    values = [[found.get((gamma, decay), (None, 0))[0] for gamma in gammas] for decay in decays]
    texts = [["" if value is None else f"{value:.2f}" for value in row] for row in values]
    figure = go.Figure(
        go.Heatmap(
            x=[f"{gamma:g}" for gamma in gammas],
            y=[f"{decay:g}" for decay in decays],
            z=values,
            text=texts,
            texttemplate="%{text}",
            **SHARE,
        )
    )
    figure.update_xaxes(title="gamma (larger: smaller initial weights)", type="category")
    figure.update_yaxes(title="weight decay", type="category")
    return styled(figure, title)


def planes(cells: Sequence[Cell]) -> list[go.Figure]:
    """The answers over the plane of operands, and against the distance to the border, of some cells."""
    sketches = [load_checkpoint(cell.path / "ckpt.pt").evaluate().sketches for cell in cells if cell.path]
    labels = [f"gamma {cell.fields['gamma']:g}" for cell in cells]
    by_kind = zip(*sketches, strict=True)
    return [side_by_side([drawn_sketch(sketch) for sketch in of_kind], labels) for of_kind in by_kind]


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2))
    parser.add_argument("--mode", default="reversed", choices=list(PRESETS), help="how sums are written")
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    parser.add_argument("--weight-decay", type=float, nargs="+", default=list(DECAYS))
    parser.add_argument("--steps", type=int, default=2000, help="optimizer steps of every cell")
    parser.add_argument(
        "--control-decay", type=float, nargs="+", default=[0.01], help="weight decays of the random split"
    )
    parser.add_argument(
        "--as-trained", action="store_true", help="only the cells that are in the sweep's folder; train none"
    )
    given = parser.parse_args()
    shared = {"steps": given.steps, "n_checkpoints": 0}
    base, seeds = PRESETS[given.mode], {"seed": given.seed}
    square = grid(base, {"gamma": given.gamma, "weight_decay": given.weight_decay, **seeds}, **shared)
    control = grid(
        base, {"gamma": given.gamma, "weight_decay": given.control_decay, **seeds}, split="random", **shared
    )
    wanted = [*square, *control]
    cells = as_trained(given, wanted) if given.as_trained else trained(given, wanted)
    rows = [measure(cell) for cell in cells]
    of_square, of_control = ([row for row in rows if row["split"] == split] for split in ("square", "random"))
    found = {
        "OOD accuracy at the end": means(of_square, lambda row: row["ood"]),
        f"OOD accuracy when train >= {FIT}": means(of_square, lambda row: row["at_fit"]["ood"]),
        "train accuracy at the end": means(of_square, lambda row: row["train"]),
        "random split: accuracy on what is left out": means(of_control, lambda row: row["ood"]),
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
        name: maps.update_layout(title_text="Addition with a left-out square"),
        f"{name}_plane": plane,
        f"{name}_distance": distance,
    }
    summary = {
        title: [
            {"gamma": gamma, "weight_decay": decay, "mean": value, "n_seeds": n}
            for (gamma, decay), (value, n) in each.items()
        ]
        for title, each in found.items()
    }
    write(given, name, pictures, {"mode": given.mode, "steps": given.steps, "means": summary, "cells": rows})


if __name__ == "__main__":
    main()
