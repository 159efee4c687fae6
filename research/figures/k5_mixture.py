"""Figure k5: does one expert of a mixture keep the exceptions, and the other the rules?

    python research/figures/k5_mixture.py [--seed 0 1 2] [--gamma .8] [--suffix .png]

The data hold rules, two broken groups and 40 exceptions; two pairs are never trained. Top-1 mixtures whose
experts start at gammas (.3, .9), (.5, .8), (.8, .8) and (.5, .5), the rest of the model at --gamma, stand
beside dense models of as many parameters, which start at one gamma as a whole.

Numbers, for each run: train accuracy, the rules on unseen pairs (OOD), broken pairs and exceptions
remembered; of mixtures the shares of the experts by kind of input in each layer, and the accuracy of each
kind with one expert taken out (`expert_use`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import ModelConfig, TrainResult
from anchorlens.models.gamma import parameter_shapes
from anchorlens.plots import CATEGORIES, styled
from anchorlens.probes import expert_use
from shared.common import options
from shared.control_arms import SEEDS, SETTING, Row, chosen_by_others, finish, measured, over_seeds

TASK: dict[str, Any] = {"complexity": 2, "unseen_pairs": [[3, 4], [4, 3]], "n_exceptions": 40}
"""The groups of (1, 2) and (1, 3) are broken; the rules are asked on the papers' unseen pairs."""
MIXTURES = ("0.3 0.9", "0.5 0.8", "0.8 0.8", "0.5 0.5")
DENSE = (0.3, 0.5, 0.8, 0.9)
ASKED, LARGE = "experts 0.5 0.8", 0
"""The mixture that the claims ask, and its expert with the large initialisation."""
MEASURED = {
    "train": "train",
    "ood": "rules, unseen pairs",
    "broken": "broken pairs",
    "exceptions": "exceptions",
}
"""Metric -> what the picture calls it."""
COLOURS = {"rules": 0, "unseen": 1, "broken": 2, "exceptions": 3}
"""Kind of input -> its colour, that of its accuracy."""


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


def arms(gamma: float) -> dict[str, dict[str, Any]]:
    """Mixtures, whose other weights have this gamma, and dense models."""
    fields: dict[str, Any] = {**TASK, "num_experts": 2, "gamma": gamma}
    found = {f"experts {gammas}": {**fields, "gamma_experts": gammas} for gammas in MIXTURES}
    mixture = ModelConfig(num_experts=2, d_model=SETTING["d_model"], d_mlp=SETTING["d_mlp"])
    dense = {**TASK, "d_mlp": dense_width(mixture)}
    return found | {f"dense {one:g}": {**dense, "gamma": one} for one in DENSE}


def of_its_task(result: TrainResult) -> dict[str, Any]:
    """What a run answers of each kind, and of a mixture what its experts are for."""
    config, found = result.checkpoint.model_config, result.behaviour.headline()
    row = {name: found[name] for name in ("broken", "exceptions", "rules")}
    row["n_parameters"] = n_parameters(config)
    if config.num_experts is not None:
        use = expert_use(result.model, result.checkpoint.task, n_sequences=2048)
        row["expert_use"] = {
            "kinds": use.kinds,
            "shares": use.shares,
            "accuracies": use.accuracies,
            "accuracies_without": use.accuracies_without,
            **use.numbers(),
        }
    return row


def both(row: Row) -> float:
    """The smaller of rules composed and exceptions remembered."""
    return min(row["ood"], row["exceptions"])


def split(row: Row) -> float:
    """Share of exceptions that the last layer sends to the large expert, minus that of rule questions."""
    kinds, last = list(row["expert_use"]["kinds"]), row["expert_use"]["shares"][-1]
    exceptions, rules = (last[kinds.index(kind)][LARGE] for kind in ("exceptions", "rules"))
    return float(exceptions - rules)


def against_dense(rows: Sequence[Row]) -> dict[int, float]:
    """Seed -> `both` of the mixture, minus that of the dense model that is best at it in the other seeds."""
    dense = [f"dense {gamma:g}" for gamma in DENSE]
    best = chosen_by_others(rows, {arm: lambda of, arm=arm: both(of(arm)) for arm in dense})
    own = over_seeds(rows, lambda of: both(of(ASKED)))
    return {seed: own[seed] - value for seed, value in best.items()}


def picture(rows: Sequence[Row]) -> go.Figure:
    """Accuracies by arm; below, of mixtures, what the last layer's router sends to the second expert."""
    numbers: dict[str, list[Row]] = {}
    for row in rows:
        numbers.setdefault(row["arm"], []).append(row)
    figure = make_subplots(
        rows=2,
        cols=1,
        vertical_spacing=0.2,
        subplot_titles=("accuracy", "proportion of inputs sent to the second expert, last layer"),
    )
    for k, (name, title) in enumerate(MEASURED.items()):
        places = [arm for arm, own in numbers.items() for _ in own]
        values = [row[name] for own in numbers.values() for row in own]
        _add(figure, title, k, places, values, row=1)
    mixtures = {arm: own for arm, own in numbers.items() if "expert_use" in own[0]}
    kinds = next(iter(mixtures.values()))[0]["expert_use"]["kinds"]
    for k, kind in enumerate(kinds):
        places = [arm for arm, own in mixtures.items() for _ in own]
        shares = [float(row["expert_use"]["shares"][-1][k][1]) for own in mixtures.values() for row in own]
        _add(figure, kind, COLOURS[kind], places, shares, row=2)
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
    """Read the command line, train what is missing, judge the claims, draw."""
    parser = options(__doc__, seeds=SEEDS)
    parser.add_argument("--gamma", type=float, default=0.8, help="of a mixture but for its experts")
    given = parser.parse_args()
    rows = measured(given, arms(given.gamma), also=of_its_task)
    numbers = {
        "mixture_both": against_dense(rows),
        "mixture_split": over_seeds(rows, lambda of: split(of(ASKED))),
    }
    finish(given, "k5_mixture", picture(rows), rows, numbers, gamma_of_the_rest=given.gamma, task=TASK)


if __name__ == "__main__":
    main()
