"""A memory beside a small-gamma model, over the number of exceptions: `anchorlens.retrieval.with_retrieval`.

    python research/control/retrieval.py [--seed 0 1 2] [--exceptions 0 20 80 320] [--suffix .png]

Question: a model with small initial weights composes rules, one with large ones memorises. As more single
(key, pair) have a random answer, does a model with small initial weights that looks its training data up in
its own activations keep the rules and remember the exceptions, which neither does alone?

Three arms: a small start alone, the same models with retrieval, and a large start alone. Layer and threshold
of the retrieval are chosen on training data alone. 24 runs of 1,000 steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from anchorlens import Evaluation, load_checkpoint
from anchorlens.figures import CATEGORIES, styled
from anchorlens.figures.side_by_side import side_by_side
from anchorlens.retrieval import with_retrieval
from anchorlens.sweep import Cell

sys.path.append(str(Path(__file__).resolve().parents[1] / "figures"))

from common import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    add_means,
    options,
    runs,
    trained,
    write,
)

NUMBERS = (0, 20, 80, 320)
"""Exceptions of the task."""
SMALL, LARGE = 0.8, 0.4
"""gamma: small initial weights, and large ones (which at .3 do not fit their data within 1,000 steps)."""
ARMS = {
    "small": f"gamma {SMALL:g} alone",
    "retrieval": f"gamma {SMALL:g} with retrieval",
    "large": f"gamma {LARGE:g} alone",
}
"""Arm -> its name."""
MEASURES = {
    "exceptions": "exceptions remembered",
    "rules": "rules, held-out keys",
    "ood": "OOD: unseen pairs",
}
"""Measure -> what stands above its picture."""


def measured(cell: Cell, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for the model of a cell alone, and for one with small initial weights another with retrieval."""
    assert cell.path is not None
    checkpoint = load_checkpoint(cell.path / "ckpt.pt")
    data, model = checkpoint.training_set(), checkpoint.build_model()
    small = cell.fields["gamma"] == SMALL
    own = {name: cell.fields[name] for name in ("gamma", "n_exceptions", "seed")}
    alone = checkpoint.task.evaluate(model, training_set=data, n_noise=given.noise)
    rows = [{**own, "arm": "small" if small else "large", **numbers_of(alone)}]
    if small:
        beside = with_retrieval(model, checkpoint.task, data, seed=own["seed"])
        found = checkpoint.task.evaluate(beside, training_set=data, n_noise=given.noise)
        rows.append(
            {
                **own,
                "arm": "retrieval",
                **numbers_of(found),
                "looked_up": asdict(beside.looked_up(seed=own["seed"])),
                "place": asdict(beside.place),
                "places": [asdict(place) for place in beside.places],
            }
        )
    return rows


def numbers_of(behaviour: Evaluation) -> dict[str, Any]:
    """Train, ID, OOD, rules and exceptions, None where not defined, and the phase.

    Without exceptions every trained pair obeys the rules: `rules` is ID.
    """
    values = {
        name: None if (value := behaviour.measure(name)) is None else value.value
        for name in ("train", "id", "ood", "exceptions", "rules")
    }
    rules = values["id"] if values["rules"] is None else values["rules"]
    return {**values, "rules": rules, "label": behaviour.phase.label}


def means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mean over seeds of every arm and number of exceptions, and each seed's values."""
    found = []
    for arm in ARMS:
        for n in sorted({row["n_exceptions"] for row in rows}):
            own = [row for row in rows if row["arm"] == arm and row["n_exceptions"] == n]
            looked = [row.get("looked_up") or {} for row in own]
            values = {
                **{name: [row[name] for row in own] for name in ("train", "id", *MEASURES)},
                **{
                    f"looked_up_{kind}": [one.get(kind) for one in looked]
                    for kind in ("rules", "exceptions", "unseen")
                },
            }
            by_seed = {
                name: {
                    row["seed"]: value for row, value in zip(own, column, strict=True) if value is not None
                }
                for name, column in values.items()
            }
            mean = {name: fmean(one.values()) if one else None for name, one in by_seed.items()}
            found.append({"arm": arm, "n_exceptions": n, "mean": mean, "by_seed": by_seed})
    return found


def draw(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Means as lines and seeds as points over the number of exceptions, a panel for each measure."""
    panels = []
    numbers = sorted({row["n_exceptions"] for row in rows})
    for name, title in MEASURES.items():
        figure = go.Figure()
        for arm, words in ARMS.items():
            points: dict[float, list[float]] = {}
            for row in rows:
                if row["arm"] == arm and row[name] is not None:
                    points.setdefault(numbers.index(row["n_exceptions"]), []).append(row[name])
            add_means(figure, words, points, dash="dash" if arm == "retrieval" else "solid")
        ticks = {"tickvals": list(range(len(numbers))), "ticktext": [f"{n:,}" for n in numbers]}
        ticks["range"] = [-0.3, len(numbers) - 0.7]
        figure.update_xaxes(title="exceptions", **ticks).update_yaxes(title=title, range=[-0.04, 1.04])
        panels.append(styled(figure, title))
    drawn = side_by_side(panels, list(MEASURES.values()))
    return drawn.update_layout(title_text="A memory beside small initial weights", colorway=CATEGORIES)


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2))
    parser.add_argument("--exceptions", type=int, nargs="+", default=list(NUMBERS), help="of the task")
    parser.add_argument("--noise", type=int, default=4, help="noise draws for every question, >= 2")
    given = parser.parse_args()
    wanted = runs(given, {"n_exceptions": given.exceptions, "gamma": [SMALL, LARGE]})
    rows = [row for cell in trained(given, wanted) for row in measured(cell, given)]
    write(given, "k6_retrieval", draw(rows), {"means": means(rows), "rows": rows})


if __name__ == "__main__":
    main()
