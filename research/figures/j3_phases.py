"""Figure 3 of arXiv 2501.08537: accuracy against gamma, and the phases over gamma x weight decay.

    python research/figures/j3_phases.py [--seed 0 1 2] [--suffix .png]

Claim: as gamma grows (the initial weights shrink), a model first memorises (Phase 1), then generalises to
held-out keys (Phase 2), with or without commutativity, then composes rules that it has never seen composed
(Phase 3).

3A: accuracies over gamma at a weight decay of .01. 3B: the phase of every cell over gamma x weight decay,
and its commutativity. The grid, which other figures share, has 132 cells of 25 seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.extras.sweep import Cell
from anchorlens.extras.sweep.diagram.maps import number_map, phase_map
from anchorlens.plots import BLUE, GREY, ORANGE, styled
from anchorlens.tasks.shared.phases import ID_THRESHOLD, OOD_THRESHOLD
from shared.common import options, trained, write
from shared.ordering import order
from shared.phases_grid import SEEDS, along, cell_numbers, main_runs, rows

DECAY = 0.01
"""Weight decay of figure 3A."""

CURVES = {
    "train": ("training data", GREY),
    "id": ("ID: held-out keys", BLUE),
    "ood": ("OOD: unseen pairs", ORANGE),
}
"""Accuracy -> its name and its colour."""


def measure_accuracies(cells: Sequence[Cell], decay: float = DECAY) -> dict[str, Any]:
    """Accuracies over gamma at one weight decay: each seed, mean and spread, and where thresholds are passed.

    `first_gamma`: by seed, the smallest gamma with ID >= .90 and the smallest with OOD > .50, None where it
    is never reached (censored: it is larger than the grid's largest). `id_before_ood`: of how many seeds the
    first is smaller than the second. `largest` of each curve has the largest accuracy of any evaluation of a
    run, as the paper draws it; an evaluation on the way asks one noise draw, the last many.
    """
    by_seed = {seed: row for (seed, where), row in rows(cells).items() if where == decay}
    gammas = [cell.fields["gamma"] for cell in next(iter(by_seed.values()))]
    curves: dict[str, Any] = {}
    for name in CURVES:
        values = {seed: [cell.numbers[name] for cell in row] for seed, row in by_seed.items()}
        largest = {seed: [_largest(cell, name) for cell in row] for seed, row in by_seed.items()}
        curves[name] = {**_over_seeds(values), "largest": _over_seeds(largest)}
    first = {
        seed: {
            "id": next((g for g, cell in zip(gammas, row, strict=True) if _is_id(cell)), None),
            "ood": next((g for g, cell in zip(gammas, row, strict=True) if _is_ood(cell)), None),
        }
        for seed, row in by_seed.items()
    }
    before = [
        gamma["id"] is not None and (gamma["ood"] is None or gamma["id"] < gamma["ood"])
        for gamma in first.values()
    ]
    return {
        "weight_decay": decay,
        "gammas": gammas,
        "curves": curves,
        "first_gamma": first,
        "id_before_ood": {"n_seeds": sum(before), "of": len(before)},
    }


def _over_seeds(values: Mapping[Any, Sequence[float]]) -> dict[str, Any]:
    """A number over gamma: each seed's, their mean and their standard deviation."""
    columns = list(zip(*values.values(), strict=True))
    return {
        "by_seed": values,
        "mean": [statistics.fmean(column) for column in columns],
        "spread": [statistics.stdev(column) if len(column) > 1 else None for column in columns],
    }


def _largest(cell: Cell, name: str) -> float:
    """The largest of an accuracy where training ended and at every evaluation on the way."""
    on_the_way = (line.get(f"{name}_accuracy") for line in cell.log())
    return max(cell.numbers[name], *(value for value in on_the_way if value is not None), 0.0)


def _is_id(cell: Cell) -> bool:
    return cell.numbers["id"] >= ID_THRESHOLD


def _is_ood(cell: Cell) -> bool:
    return cell.numbers["ood"] > OOD_THRESHOLD


def measure_phases(cells: Sequence[Cell]) -> dict[str, Any]:
    """The phases of every row along gamma, and by seed how often they are in the papers' order.

    `share`: of the pairs of cells of one seed and weight decay that both have a phase, the share in which
    the phase at the larger gamma is not the lower one; `share_shuffled` is its mean with the same phases at
    gammas in random order; `rising_share` leaves out the pairs that have the same phase.
    """
    labels = [cell.numbers["label"] for cell in cells]
    return {
        "order": along(cells, "gamma", lambda cell: cell.numbers["phase"]),
        "order_along_weight_decay": along(cells, "weight_decay", lambda cell: cell.numbers["phase"]),
        "rows": [
            {
                "seed": seed,
                "weight_decay": decay,
                "gammas": [cell.fields["gamma"] for cell in row],
                "phases": [cell.numbers["phase"] for cell in row],
                "share": order([cell.numbers["phase"] for cell in row]).not_falling,
                "has_all_three": {1, 2, 3} <= {cell.numbers["phase"] for cell in row},
            }
            for (seed, decay), row in rows(cells).items()
        ],
        "n_cells_by_label": {label: labels.count(label) for label in sorted(set(labels))},
        "cells": cell_numbers(cells, "phase", "commutative", "train", "id", "ood", "commutativity"),
    }


def draw_accuracies(numbers: Mapping[str, Any]) -> go.Figure:
    """Means as lines, seeds as points, over gamma; dotted: the thresholds of the phases."""
    figure = go.Figure()
    for name, (title, color) in CURVES.items():
        curve = numbers["curves"][name]
        mean = {"mode": "lines", "line_color": color, "name": title}
        figure.add_scatter(x=numbers["gammas"], y=curve["mean"], **mean)
        for values in curve["by_seed"].values():
            marker = {"color": color, "size": 6, "symbol": "circle-open"}
            point = {"mode": "markers", "marker": marker, "showlegend": False}
            figure.add_scatter(x=numbers["gammas"], y=values, **point)
    for threshold, color in ((ID_THRESHOLD, BLUE), (OOD_THRESHOLD, ORANGE)):
        figure.add_hline(y=threshold, line={"color": color, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="gamma (larger: smaller initial weights)", dtick=0.1)
    figure.update_yaxes(title="accuracy", range=[-0.03, 1.03])
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    n_seeds = len(numbers["first_gamma"])
    seeds = f"mean of {n_seeds} seeds, each a point" if n_seeds > 1 else "one seed"
    return styled(figure, f"Weight decay {numbers['weight_decay']:g}: {seeds}; dotted: thresholds")


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = options(__doc__, seeds=SEEDS).parse_args()
    cells = trained(given, main_runs(given))
    accuracies = measure_accuracies(cells)
    pictures = {
        "j3a_accuracy": draw_accuracies(accuracies),
        "j3b_phases": phase_map(cells),
        "j3b_commutativity": number_map(cells, "commutativity"),
    }
    write(given, "j3_phases", pictures, {"accuracies": accuracies, "phases": measure_phases(cells)})


if __name__ == "__main__":
    main()
