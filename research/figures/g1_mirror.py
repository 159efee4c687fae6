"""Figure g1: what does a network know before it generalises? Held-out pairs by their mirror.

    python research/figures/g1_mirror.py [--seed 1 2 3] [--suffix .png]

Six operations modulo 59 and addition modulo 53, one layer without LayerNorm. A pair (b, a) is the mirror of
(a, b). Addition, multiplication and a^2 + ab + b^2 commute; subtraction, division and random answers do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import plots
from shared.common import options
from shared.control_arms import finish, measured, over_seeds
from shared.grokking import CURVES, SEEDS, curves, difference, setting

OPERATIONS = {
    "add": "a + b",
    "multiply": "a b",
    "x2xyy2": "a² + ab + b²",
    "subtract": "a − b",
    "divide": "a / b",
    "random": "random answers",
}
OTHER_MODULUS = 53
CLAIMS = {
    "mirror_add": "add",
    "mirror_add_other_modulus": f"add, modulo {OTHER_MODULUS}",
    "mirror_multiply": "multiply",
    "mirror_square": "x2xyy2",
    "mirror_subtract": "subtract",
    "mirror_divide": "divide",
    "mirror_random": "random",
}
"""Claim -> the arm whose difference it is about."""


SHOWN = {
    "train": "train",
    "mirrored": "held out, mirror trained",
    "unmirrored": "held out, mirror not trained",
}
"""Curve -> its name in the picture."""


def arms() -> dict[str, dict[str, Any]]:
    """Every operation, and addition with another modulus."""
    of_operations: dict[str, dict[str, Any]] = {name: setting(name) for name in OPERATIONS}
    return {**of_operations, f"add, modulo {OTHER_MODULUS}": setting("add", OTHER_MODULUS)}


def drawing(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Accuracies over updates, a panel for each arm: means over seeds, and a thin line for each seed."""
    names = list(arms())
    titles = [OPERATIONS.get(name, f"a + b modulo {OTHER_MODULUS}") for name in names]
    figure = make_subplots(rows=2, cols=4, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.2)
    for place, arm in enumerate(names):
        own = [row["curves"] for row in rows if row["arm"] == arm]
        cell = {"row": 1 + place // 4, "col": 1 + place % 4}
        for colour, (metric, title) in zip(plots.CATEGORIES, SHOWN.items(), strict=False):
            at = 1 + CURVES.index(metric)
            for points in own:
                figure.add_scatter(
                    x=[point[0] for point in points], y=[point[at] for point in points], mode="lines",
                    line={"color": colour, "width": 1}, opacity=0.45, showlegend=False, **cell,
                )  # fmt: skip
            steps = [point[0] for point in own[0]]
            means = [fmean(points[k][at] for points in own) for k in range(len(steps))]
            figure.add_scatter(
                x=steps, y=means, mode="lines", line={"color": colour, "width": 2.5}, name=title,
                showlegend=place == 0, **cell,
            )  # fmt: skip
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="accuracy", col=1)
    figure.update_xaxes(title="updates", row=2)
    styled = plots.styled(figure, "Held-out pairs by whether their mirror was trained")
    return styled.update_layout(
        width=1150, height=640, margin_t=100, showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.12, "yanchor": "top", "title": None},
    )  # fmt: skip


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = options(__doc__, seeds=SEEDS, preset="grokking-quick").parse_args()
    rows = measured(given, arms(), setting={}, also=curves)
    numbers = {
        claim: over_seeds(rows, lambda of, arm=arm: difference(of(arm))) for claim, arm in CLAIMS.items()
    }
    finish(given, "g1_mirror", drawing(rows), rows, numbers)


if __name__ == "__main__":
    main()
