"""Figure g3: which weight decay and which initialisation let a network generalise, and after which wait?

    python research/figures/g3_decay_gamma.py [--seed 1 2 3] [--suffix .png]

Addition modulo 59 at three decays and three gammas. The four outcomes have the names of Liu et al. (arXiv
2205.10343): comprehension, grokking, memorisation, confusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens import plots
from shared.common import options
from shared.control_arms import Row, finish, measured, over_seeds
from shared.grokking import OUTCOMES, SEEDS, correlation, curves, outcome, setting, wait

GAMMAS, DECAYS = (0.2, 0.36, 0.64), (0.0, 1.0, 3.0)
LARGE, MIDDLE, SMALL = 0.2, 0.36, 0.64


def arm(gamma: float, decay: float) -> str:
    """The name of an arm."""
    return f"gamma {gamma:g}, decay {decay:g}"


def arms() -> dict[str, dict[str, Any]]:
    """Every gamma with every decay."""
    return {
        arm(gamma, decay): {"gamma": gamma, "weight_decay": decay} for gamma in GAMMAS for decay in DECAYS
    }


def drawing(rows: Sequence[Row]) -> go.Figure:
    """A point for each seed at every gamma and decay, in the colour of its outcome."""
    figure = go.Figure()
    seeds = sorted({row["seed"] for row in rows})
    for colour, name in zip(plots.CATEGORIES, OUTCOMES, strict=False):
        points = [
            (x + 0.22 * (seeds.index(row["seed"]) - (len(seeds) - 1) / 2), y)
            for x, gamma in enumerate(GAMMAS)
            for y, decay in enumerate(DECAYS)
            for row in rows
            if row["arm"] == arm(gamma, decay) and outcome(row) == name
        ]
        figure.add_scatter(
            x=[x for x, _ in points], y=[y for _, y in points], mode="markers", name=name,
            marker={"size": 16, "color": colour, "symbol": OUTCOMES[name]},
        )  # fmt: skip
    figure.update_xaxes(title="gamma", tickvals=list(range(len(GAMMAS))), ticktext=[f"{g:g}" for g in GAMMAS])
    figure.update_yaxes(
        title="weight decay", tickvals=list(range(len(DECAYS))), ticktext=[f"{d:g}" for d in DECAYS]
    )
    styled = plots.styled(figure, "Outcome of addition modulo 59, three seeds side by side")
    return styled.update_layout(showlegend=True)


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = options(__doc__, seeds=SEEDS, preset="grokking-quick").parse_args()
    rows = measured(given, arms(), setting=setting(), also=curves)
    correlations = {}
    for seed in given.seed:
        of = {row["arm"]: row for row in rows if row["seed"] == seed}
        rank = correlation(DECAYS, [wait(of[arm(MIDDLE, decay)]) for decay in DECAYS])
        if rank is not None:
            correlations[seed] = rank
    numbers = {
        "decay_shortens": correlations,
        "memorises_without_decay": over_seeds(rows, lambda of: of(arm(LARGE, 0))["id"]),
        "small_without_decay": over_seeds(rows, lambda of: of(arm(SMALL, 0))["id"]),
    }
    finish(given, "g3_decay_gamma", drawing(rows), rows, numbers)


if __name__ == "__main__":
    main()
