"""Figure 10 of arXiv 2501.08537: condensation of W_Q over gamma x weight decay.

    python research/figures/j10_condensation.py [--seed 0 1 2] [--suffix .png]

Claim: the smaller the initial weights (the larger gamma) and the larger the weight decay, the fewer are the
directions that the neurons of the first layer's W_Q point in.

The picture shows the first of the seeds, the numbers are over all of them. The matrices are not in the
JSON; `anchorlens probe q_condensation CELL/ckpt.pt --json` prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from anchorlens.extras.sweep import Cell
from anchorlens.extras.sweep.diagram.outcomes import outcome
from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.plots import cosine_heatmap, styled
from anchorlens.probes import apply, q_condensation
from shared.common import options, trained, write
from shared.phases_grid import SEEDS, cell_numbers, final, labelled, main_runs, summary

NUMBERS = ("q_condensation.mean_abs_cosine", "q_condensation.n_groups", "stable_rank.w_q")
SIDE = 64
"""Neurons on a side of each matrix of the picture; of more, as many evenly out of their order."""
GAP = 14
"""Pixels of the picture between two matrices."""


def measure(cells: Sequence[Cell]) -> dict[str, np.ndarray]:
    """Cosines of W_Q's neurons in grouped order, by the cell's identity."""
    return {cell.id: _grouped(cell) for cell in cells}


def _grouped(cell: Cell) -> Float[np.ndarray, "neuron neuron"]:
    result: Any = apply(q_condensation, load_checkpoint(final(cell)))
    n = len(result.order)
    shown = result.order[np.linspace(0, n - 1, min(n, SIDE)).round().astype(int)]
    return result.cosines[np.ix_(shown, shown)]


def draw(cells: Sequence[Cell], matrices: dict[str, np.ndarray]) -> go.Figure:
    """The matrices in their places: gamma across, weight decay upwards, the sign of the phase above each.

    Args:
        cells: of one seed.
        matrices: of `measure`.
    """
    gammas, decays = (sorted({cell.fields[axis] for cell in cells}) for axis in ("gamma", "weight_decay"))
    side = len(matrices[cells[0].id])
    step = side + GAP
    canvas = np.full((step * len(decays), step * len(gammas)), np.nan)
    figure = go.Figure()
    for cell in cells:
        column = gammas.index(cell.fields["gamma"]) * step
        row = (len(decays) - 1 - decays.index(cell.fields["weight_decay"])) * step + GAP
        canvas[row : row + side, column : column + side] = matrices[cell.id]
        text = {"text": outcome(cell).sign, "showarrow": False, "font": {"size": 10}, "yanchor": "bottom"}
        figure.add_annotation(x=column + (side - 1) / 2, y=row - 1, **text)
    figure.add_trace(cosine_heatmap(canvas))
    middle = (side - 1) / 2
    figure.update_xaxes(
        title="gamma (larger: smaller initial weights)",
        tickvals=[k * step + middle for k in range(len(gammas))],
        ticktext=[f"{gamma:g}" for gamma in gammas],
    )
    figure.update_yaxes(
        title="weight decay",
        tickvals=[k * step + GAP + middle for k in range(len(decays))],
        ticktext=[f"{decay:g}" for decay in reversed(decays)],
        autorange="reversed",
        scaleanchor="x",
        constrain="domain",
    )
    title = f"Cosines of W_Q's neurons, first layer, grouped (seed {cells[0].fields['seed']})"
    return styled(figure, title, width=160 + 85 * len(gammas), height=130 + 80 * len(decays))


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = options(__doc__, seeds=SEEDS).parse_args()
    cells = trained(given, main_runs(given))
    groups = labelled(given, cells, alike=True)
    numbers = {name: summary(cells, groups, name) for name in NUMBERS}
    shown = [cell for cell in cells if cell.fields["seed"] == given.seed[0]]
    picture = draw(shown, measure(shown))
    write(given, "j10_condensation", picture, {**numbers, "cells": cell_numbers(cells, *NUMBERS)})


if __name__ == "__main__":
    main()
