"""Figure k6: a memory beside a model with small initial weights, as the number of exceptions grows.

    python research/figures/k6_retrieval.py [--seed 0 1 2] [--suffix .png]

A model with small initial weights (gamma .8) alone and with retrieval (`anchorlens.extras.retrieval`), and
one with large ones (gamma .5) alone. Layer and threshold of the retrieval are chosen on training data alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import plotly.graph_objects as go

from anchorlens import TrainResult, plots
from anchorlens.extras.retrieval import with_retrieval
from anchorlens.plots.side_by_side import side_by_side
from shared.common import add_means
from shared.control_arms import Row, command_line, finish, measured, over_seeds

NUMBERS = (0, 20, 80, 320)
"""Exceptions of the task."""
SMALL, LARGE = 0.8, 0.5
N_NOISE = 4
"""Noise draws of every question."""
ASKED = ("exceptions", "rules", "ood")
TITLES = {
    "exceptions": "exceptions remembered",
    "rules": "rules, held-out keys",
    "ood": "OOD: unseen pairs",
}


def arm(gamma: float, n: int) -> str:
    """The name of an arm."""
    return f"gamma {gamma:g}, {n} exceptions"


def arms() -> dict[str, dict[str, Any]]:
    """Both gammas with every number of exceptions."""
    return {arm(gamma, n): {"gamma": gamma, "n_exceptions": n} for gamma in (SMALL, LARGE) for n in NUMBERS}


def alone_and_with_retrieval(result: TrainResult) -> dict[str, Any]:
    """What a run answers, and with small initial weights what it answers with retrieval."""
    task, data = result.checkpoint.task, result.checkpoint.training_set()
    row: dict[str, Any] = answers(result.behaviour.headline())
    if result.checkpoint.model_config.gamma == SMALL:
        beside = with_retrieval(result.model, task, data)
        found = task.evaluate(beside, training_set=data, n_noise=N_NOISE)
        row["retrieval"] = {
            **answers(found.headline()),
            "looked_up": asdict(beside.looked_up()),
            "place": asdict(beside.place),
        }
    return row


def answers(headline: Row) -> dict[str, float | None]:
    """Exceptions, rules and OOD; without exceptions every trained pair obeys the rules, and `rules` is ID."""
    rules = headline.get("rules")
    return {
        "exceptions": headline.get("exceptions"),
        "rules": headline["id"] if rules is None else rules,
        "ood": headline["ood"],
    }


def draw(rows: Sequence[Row]) -> go.Figure:
    """A panel for each measure: means as lines and seeds as points over the number of exceptions."""
    panels = []
    for name in ASKED:
        figure = go.Figure()
        for title, gamma, of_row in (
            (f"gamma {SMALL:g} without retrieval", SMALL, lambda row: row),
            (f"gamma {SMALL:g} with retrieval", SMALL, lambda row: row["retrieval"]),
            (f"gamma {LARGE:g} without retrieval", LARGE, lambda row: row),
        ):
            points: dict[float, list[float]] = {}
            for place, n in enumerate(NUMBERS):
                own = [of_row(row)[name] for row in rows if row["arm"] == arm(gamma, n)]
                if own and None not in own:
                    points[place] = own
            add_means(figure, title, points, dash="dash" if " with " in title else "solid")
        ticks = {"tickvals": list(range(len(NUMBERS))), "ticktext": [f"{n:,}" for n in NUMBERS]}
        figure.update_xaxes(title="exceptions", range=[-0.3, len(NUMBERS) - 0.7], **ticks)
        figure.update_yaxes(title=TITLES[name], range=[-0.04, 1.04])
        panels.append(plots.styled(figure, TITLES[name]))
    drawn = side_by_side(panels, list(TITLES.values()))
    return drawn.update_layout(title_text="Retrieval with small initial weights", colorway=plots.CATEGORIES)


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms(), also=alone_and_with_retrieval)

    def gained(of: Any, name: str) -> float:
        row = of(arm(SMALL, NUMBERS[-1]))
        return row["retrieval"][name] - row[name]

    numbers = {
        "retrieval_remembers": over_seeds(rows, lambda of: gained(of, "exceptions")),
        "retrieval_keeps_rules": over_seeds(rows, lambda of: gained(of, "ood")),
    }
    finish(given, "k6_retrieval", draw(rows), rows, numbers)


if __name__ == "__main__":
    main()
