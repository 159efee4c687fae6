"""Figure g2: does the initialisation decide how long a network waits before it generalises?

    python research/figures/g2_gamma.py [--seed 1 2 3] [--suffix .png]

Addition modulo 59, decay 1, five gammas. Two pictures: accuracy over updates, and the step at which a network
generalises over gamma, beside the law t = (gamma_c - gamma) ln(d_model) / (lr decay).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import plots
from shared.common import options
from shared.control_arms import Row, finish, measured, over_seeds
from shared.grokking import CURVES, SEEDS, correlation, curves, setting, wait

GAMMAS = (0.2, 0.36, 0.5, 0.55, 0.64)
DECAY = 1.0


def arm(gamma: float) -> str:
    """The name of an arm."""
    return f"gamma {gamma:g}"


def law(row: Row) -> float:
    """Updates by which the law lets a unit of gamma bring the generalisation forward: negative."""
    return -math.log(row["d_model"]) / (row["lr"] * DECAY)


def slope(rows: Sequence[Row]) -> float | None:
    """Least-squares slope of the step at which runs generalise, over gamma; None for fewer than three."""
    found = [row for row in rows if row["generalises_at"] is not None]
    if len(found) < 3:
        return None
    gammas, steps = ([row[name] for row in found] for name in ("gamma", "generalises_at"))
    return float(np.polyfit(gammas, steps, 1)[0])


def ratio_to_law(rows: Sequence[Row]) -> float | None:
    """log2 of the measured slope over the law's; None where it is not measured or has the other sign."""
    found = slope(rows)
    return None if found is None or found >= 0 else math.log2(found / law(rows[0]))


def of_run(result: Any) -> dict[str, Any]:
    """The curves of a run, and what the law needs of it."""
    model, train = result.checkpoint.model_config, result.checkpoint.train_config
    return {**curves(result), "gamma": model.gamma, "d_model": model.d_model, "lr": train.lr}


def accuracy_drawing(rows: Sequence[Row]) -> go.Figure:
    """Train and held-out accuracy over updates, a panel for each gamma."""
    titles = [arm(gamma) for gamma in GAMMAS]
    figure = make_subplots(rows=1, cols=len(GAMMAS), subplot_titles=titles, shared_yaxes=True)
    for place, gamma in enumerate(GAMMAS):
        own = [row["curves"] for row in rows if row["arm"] == arm(gamma)]
        for colour, metric, title in zip(
            plots.CATEGORIES, ("train", "id"), ("train", "held out"), strict=False
        ):
            at = 1 + CURVES.index(metric)
            for k, points in enumerate(own):
                figure.add_scatter(
                    x=[point[0] for point in points], y=[point[at] for point in points], mode="lines",
                    line={"color": colour, "width": 1.5}, name=title, showlegend=not (place or k),
                    row=1, col=place + 1,
                )  # fmt: skip
    figure.update_xaxes(title="updates", type="log")
    figure.update_yaxes(range=[-0.03, 1.03])
    figure.update_yaxes(title="accuracy", col=1)
    styled = plots.styled(figure, "Addition modulo 59 from five initialisations, three seeds each")
    return styled.update_layout(
        width=1150, height=380, showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.25, "yanchor": "top", "title": None},
    )  # fmt: skip


def law_drawing(rows: Sequence[Row]) -> go.Figure:
    """The step at which a run generalises over gamma, with the law's slope through the mean of the points."""
    points = [(row["gamma"], row["generalises_at"]) for row in rows if row["generalises_at"] is not None]
    figure = go.Figure()
    figure.add_scatter(
        x=[gamma for gamma, _ in points], y=[step for _, step in points], mode="markers", name="a run",
        marker={"size": 8, "color": plots.CATEGORIES[0]},
    )  # fmt: skip
    if points:
        centre = fmean(gamma for gamma, _ in points), fmean(step for _, step in points)
        ends = (min(GAMMAS), max(GAMMAS))
        for name, each, dash in (("least squares", slope(rows), "solid"), ("the law", law(rows[0]), "dash")):
            if each is not None:
                y = [centre[1] + each * (gamma - centre[0]) for gamma in ends]
                line = {"dash": dash, "color": "#555555"}
                figure.add_scatter(x=ends, y=y, mode="lines", name=name, line=line)
    never = [row["gamma"] for row in rows if row["generalises_at"] is None]
    if never:
        last = max(row["curves"][-1][0] for row in rows)
        marker = {"symbol": "triangle-up-open", "size": 9, "color": plots.CATEGORIES[1]}
        figure.add_scatter(
            x=never, y=[last] * len(never), mode="markers", name="not by the end", marker=marker
        )
    figure.update_xaxes(title="gamma").update_yaxes(title="updates until it generalises", rangemode="tozero")
    return plots.styled(figure, "Steps to generalise over gamma").update_layout(showlegend=True)


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = options(__doc__, seeds=SEEDS, preset="grokking-quick").parse_args()
    arms = {arm(gamma): {"gamma": gamma, "weight_decay": DECAY} for gamma in GAMMAS}
    rows = measured(given, arms, setting=setting(), also=of_run)
    ratios, correlations = {}, {}
    for seed in given.seed:
        own = [row for row in rows if row["seed"] == seed]
        rank = correlation([row["gamma"] for row in own], [wait(row) for row in own])
        if rank is not None:
            correlations[seed] = rank
        if (ratio := ratio_to_law(own)) is not None:
            ratios[seed] = ratio
    numbers = {
        "wait_gamma": correlations,
        "no_wait": over_seeds(rows, lambda of: wait(of(arm(GAMMAS[-1])))),
        "law": ratios,
    }
    pictures = {"g2_gamma": accuracy_drawing(rows), "g2_law": law_drawing(rows)}
    finish(given, "g2_gamma", pictures, rows, numbers, slope=slope(rows), law=law(rows[0]))


if __name__ == "__main__":
    main()
