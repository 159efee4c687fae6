"""Figure k7: does the phase follow the norm of the weights, or the optimizer?

    python research/figures/k7_optimizers.py [--seed 0 1 2] [--suffix .png]

Gamma .5 with AdamW, Adam with plain L2, and Muon, each with several weight decays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from scipy.stats import spearmanr

from anchorlens import plots
from shared.control_arms import best_by_others, command_line, finish, measured

GAMMA = 0.5
DECAYS = {"adamw": (0.0, 0.1, 1.0), "adam": (1e-5, 1e-4, 1e-3), "muon": (0.0, 0.1, 1.0)}
"""Optimizer -> weight decay; plain L2 works on the gradient, so that its sizes are others."""
SYMBOLS = ("circle-open", "diamond", "square")
"""Of the smallest, the middle and the largest decay."""


def arms() -> dict[str, dict[str, Any]]:
    """Every optimizer with every decay."""
    return {
        f"{optimizer} {decay:g}": {"gamma": GAMMA, "optimizer": optimizer, "weight_decay": decay}
        for optimizer, decays in DECAYS.items()
        for decay in decays
    }


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's correlation."""
    found: Any = spearmanr(one, other)
    return float(found.statistic)


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms(), readings=("stable_rank.w_q", "q_condensation.mean_abs_cosine"))
    best = {
        optimizer: best_by_others(rows, [name for name in arms() if name.split()[0] == optimizer])
        for optimizer in DECAYS
    }
    correlations = {}
    for seed in given.seed:
        own = [row for row in rows if row["seed"] == seed]
        correlations[seed] = rank_correlation(
            [row["weight_norm"] for row in own], [row["ood"] for row in own]
        )
    numbers = {
        "optimizer_norm": correlations,
        "optimizer_method": {
            seed: row["ood"] - best["adamw"][seed]["ood"] for seed, row in best["muon"].items()
        },
    }
    picture = go.Figure()
    for colour, (optimizer, decays) in zip(plots.CATEGORIES, DECAYS.items(), strict=False):
        for symbol, decay in zip(SYMBOLS, decays, strict=True):
            own = [row for row in rows if row["arm"] == f"{optimizer} {decay:g}"]
            picture.add_scatter(
                x=[row["weight_norm"] for row in own],
                y=[row["ood"] for row in own],
                mode="markers",
                marker={"color": colour, "size": 9, "symbol": symbol},
                name=f"{optimizer}, decay {decay:g}",
            )
    picture.update_xaxes(title="norm of all weights at the end").update_yaxes(
        title="OOD accuracy", range=[-0.03, 1.08]
    )
    styled = plots.styled(picture, "OOD over the norm of the weights")
    finish(given, "k7_optimizers", styled.update_layout(showlegend=True), rows, numbers)


if __name__ == "__main__":
    main()
