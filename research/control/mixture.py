"""Mixtures of two experts of different gamma: does one of them keep the exceptions, and the other the rules?

    python research/control/mixture.py [--seed 0 1 2] [--gamma .8] [--suffix .svg]

The data hold rules, two broken groups and 40 exceptions; two pairs are never trained. Top-1 mixtures whose
experts start at gammas (.3, .9), (.5, .8), (.8, .8) and (.5, .5), the rest of the model at --gamma, stand
beside dense models of as many parameters, which start at one gamma as a whole.

Numbers, for each seed and as means: train accuracy, the rules on unseen pairs (OOD), broken pairs and
exceptions remembered; of mixtures the shares of the experts by kind of input in each layer, and the accuracy
of each kind with one expert taken out (`expert_use`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import load_checkpoint
from anchorlens.figures import CATEGORIES, styled
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import parameter_shapes
from anchorlens.probes import expert_use
from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep import Cell

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from common import options, runs, trained, write  # noqa: E402 # pyright: ignore[reportMissingImports]

TASK: dict[str, Any] = {"complexity": 2, "unseen_pairs": [[3, 4], [4, 3]], "n_exceptions": 40}
"""The groups of (1, 2) and (1, 3) are broken; the rules are asked on the papers' unseen pairs."""
MIXTURES = ("0.3 0.9", "0.5 0.8", "0.8 0.8", "0.5 0.5")
DENSE = (0.3, 0.5, 0.8, 0.9)
STEPS = 1500
MEASURED = {
    "train": "train",
    "ood": "rules, unseen pairs",
    "broken": "broken pairs",
    "exceptions": "exceptions",
}
"""Metric -> what the picture calls it."""


def n_parameters(config: ModelConfig) -> int:
    """Numbers that are trained."""
    return sum(map(math.prod, parameter_shapes(config).values()))


def dense_width(config: ModelConfig) -> int:
    """The d_mlp of a dense model that has as many parameters as a mixture, as nearly as there is one.

    >>> dense_width(ModelConfig(num_experts=2))  # 2 (3 * 128 * 256 + 128) is about 766 (2 * 128 + 1) + 128
    766
    """
    assert config.num_experts is not None
    of_mixture = config.num_experts * (3 * config.d_model * config.d_mlp + config.d_model)
    return round((of_mixture - config.d_model) / (2 * config.d_model + 1))


def arms(given: Any) -> dict[str, list[RunConfig]]:
    """Arm -> its runs, one for each seed."""
    fields = {**TASK, "steps": STEPS}
    found = {}
    for gammas in MIXTURES:
        mixture = {**fields, "num_experts": 2, "gamma_experts": gammas, "gamma": given.gamma}
        found[f"experts {gammas}"] = runs(given, {}, **mixture)
    width = dense_width(next(iter(found.values()))[0].model_config)
    for gamma in DENSE:
        found[f"dense {gamma}"] = runs(given, {}, **fields, gamma=gamma, d_mlp=width)
    return found


def measured(cell: Cell) -> dict[str, Any]:
    """What one run answers, and of a mixture what its experts are for."""
    config, seed = cell.run.model_config, cell.run.train_config.seed
    row: dict[str, Any] = {"seed": seed, "n_parameters": n_parameters(config)}
    row |= {name: cell.numbers[name] for name in (*MEASURED, "rules", "id", "label")}
    if config.num_experts is not None:
        assert cell.path is not None
        checkpoint = load_checkpoint(Path(cell.path) / "ckpt.pt")
        use = expert_use(checkpoint.build_model(), checkpoint.task, n_sequences=2048)
        row["expert_use"] = {
            "kinds": use.kinds,
            "shares": use.shares,
            "accuracies": use.accuracies,
            "accuracies_without": use.accuracies_without,
            **use.numbers(),
        }
    return row


def means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean over seeds of each accuracy."""
    return {name: fmean(row[name] for row in rows) for name in (*MEASURED, "rules", "id")}


def picture(numbers: dict[str, list[dict[str, Any]]]) -> go.Figure:
    """Accuracies by arm; below, of mixtures, what the last layer's router sends to the second expert."""
    figure = make_subplots(
        rows=2,
        cols=1,
        vertical_spacing=0.2,
        subplot_titles=("accuracy", "share of the second expert, last layer"),
    )
    for k, (name, title) in enumerate(MEASURED.items()):
        places = [arm for arm, rows in numbers.items() for _ in rows]
        values = [row[name] for rows in numbers.values() for row in rows]
        _add(figure, title, k, places, values, row=1)
    mixtures = {arm: rows for arm, rows in numbers.items() if "expert_use" in rows[0]}
    kinds = next(iter(mixtures.values()))[0]["expert_use"]["kinds"]
    for k, kind in enumerate(kinds):
        places = [arm for arm, rows in mixtures.items() for _ in rows]
        shares = [float(row["expert_use"]["shares"][-1][k][1]) for rows in mixtures.values() for row in rows]
        _add(figure, kind, len(MEASURED) + k, places, shares, row=2)
    figure.update_yaxes(range=[-0.02, 1.02])
    figure.update_xaxes(type="category")
    figure.update_layout(legend={"tracegroupgap": 200})
    title = "Mixtures of two experts, and dense models of as many parameters"
    return styled(figure, title, width=900, height=620)


def _add(figure: go.Figure, name: str, k: int, places: list[str], values: list[float], *, row: int) -> None:
    """A bar for the mean of each place, and a line from the smallest to the largest."""
    colour = CATEGORIES[k % len(CATEGORIES)]
    each = {place: [v for p, v in zip(places, values, strict=True) if p == place] for place in places}
    figure.add_bar(
        x=list(each),
        y=[fmean(found) for found in each.values()],
        error_y={
            "type": "data",
            "array": [max(found) - fmean(found) for found in each.values()],
            "arrayminus": [fmean(found) - min(found) for found in each.values()],
        },
        name=name,
        marker_color=colour,
        legendgroup=str(row),
        row=row,
        col=1,
    )


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset="quick")
    parser.add_argument("--gamma", type=float, default=0.8, help="of a mixture but for its experts")
    given = parser.parse_args()
    by_arm = arms(given)
    cells = iter(trained(given, [run for wanted in by_arm.values() for run in wanted]))
    numbers = {arm: [measured(next(cells)) for _ in wanted] for arm, wanted in by_arm.items()}
    summary = {arm: means(rows) for arm, rows in numbers.items()}
    for arm, values in summary.items():
        print(arm, *(f"{name} {value:.3f}" for name, value in values.items()))
    content = {"gamma_of_the_rest": given.gamma, "task": TASK, "means": summary, "runs": numbers}
    write(given, "k5_mixture", picture(numbers), content)


if __name__ == "__main__":
    main()
