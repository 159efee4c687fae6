"""Figure 5 of arXiv 2501.08537: complexity of the weights, over gamma x weight decay and in each phase.

    python research/figures/j5_complexity.py [--seed 0 1 2] [--suffix .png]

Claims. In models that compose rules (Phase 3) the neurons of the first layer's W_Q have condensed into few
directions (5A), the embedding carries the order of the numbers (5B), and the stable rank of W_Q is lower;
it falls with gamma and with weight decay (5C).

Numbers: over all cells of the grid of figure 3, and by label. 5A and 5B show, of each label, the cell whose
number is the median; the matrices of 5A are not in the JSON, `anchorlens probe q_condensation CELL/ckpt.pt
--json` prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorlens.extras.sweep import Cell
from anchorlens.extras.sweep.diagram.maps import rank_map
from anchorlens.probes import Comparison
from shared.common import options, trained, write
from shared.phases_grid import SEEDS, Group, cell_numbers, compare_typical, labelled, main_runs, summary

PANELS = {
    "condensation": ("q_condensation", "mean_abs_cosine"),
    "embedding": ("embedding_pca", "lag_order"),
}
"""Panel -> the probe whose pictures it shows, and the number by which it chooses them."""

STABLE_RANK = "stable_rank.w_q"


def measure_panel(
    cells: Sequence[Cell], groups: Sequence[Group], probe: str, reading: str
) -> tuple[dict[str, Any], Comparison]:
    """A number of the weights over the grid and by label, and the probe's pictures of typical cells."""
    values = [[{reading: cell.numbers.get(f"{probe}.{reading}")} for cell in group.cells] for group in groups]
    comparison, shown = compare_typical(groups, probe, reading, values)
    return {**shown, **summary(cells, groups, f"{probe}.{reading}")}, comparison


def coordinates(comparison: Comparison) -> dict[str, Any]:
    """What a comparison of embeddings draws: tokens at their points, the spectrum, the cosines by lag."""
    drawn = ("tokens", "coordinates", "explained", "spectrum", "lags", "lag_cosines")
    return {label: {name: content[name] for name in drawn} for label, content in comparison.to_dict().items()}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = options(__doc__, seeds=SEEDS).parse_args()
    cells = trained(given, main_runs(given))
    groups = labelled(given, cells, alike=True)
    numbers, pictures = {}, {}
    for letter, (panel, asked) in zip("ab", PANELS.items(), strict=True):
        numbers[panel], comparison = measure_panel(cells, groups, *asked)
        pictures[f"j5{letter}_{panel}"] = comparison.plot()
        if panel == "embedding":
            numbers[panel]["drawn"] = coordinates(comparison)
    numbers["stable_rank"] = {
        **summary(cells, groups, STABLE_RANK),
        "cells": cell_numbers(cells, "phase", STABLE_RANK, *map(".".join, PANELS.values())),
    }
    pictures["j5c_stable_rank"] = rank_map(cells, "gamma", "weight_decay")
    write(given, "j5_complexity", pictures, numbers)


if __name__ == "__main__":
    main()
