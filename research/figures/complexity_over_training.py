"""Complexity of a model while it trains, at small and large initialisation, and what the recipe does to it.

    python research/figures/complexity_over_training.py [--seed 0 1] [--suffix .png]

Claim of arXiv 2405.05409 and 2501.08537: at a small initialisation the first steps gather the neurons of W_Q
in few directions, and complexity then grows as far as the data ask for; at a large one it stays as high as it
was; weight decay lowers it. (The start itself says nothing: it is as random at any scale, and the measures do
not know the scale.)

Three measures at every checkpoint of the trajectory: mean |cosine| of W_Q's neurons and stable rank of W_Q
(first layer), and how many components make up 90 % of the embedding's variance. The default trains 20 cells
of 13 seconds and reads 21 checkpoints of each (about 6 minutes on one core).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import load_checkpoint
from anchorlens.extras.sweep import Cell
from anchorlens.plots import styled
from anchorlens.probes import embedding_pca, q_condensation, stable_rank
from anchorlens.recipes.run_config import RunConfig
from c7_covariance import components_for
from shared import common
from shared.solutions import answers, conflict_runs

INITIALISATIONS = {0.8: "small", 0.5: "large"}
N_CHECKPOINTS = 20
MEASURES = {
    "mean_abs_cosine": "mean |cosine|<br>of W_Q's neurons",
    "stable_rank": "stable rank of W_Q,<br>divided by a Gaussian's",
    "components": "embedding: components<br>for 90% of the variance",
}
SETTINGS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "recipe": ("#000000", {}),
    "half the learning rate": ("#56B4E9", {"lr": 0.5}),
    "twice the learning rate": ("#0072B2", {"lr": 2.0}),
    "weight decay 0": ("#E69F00", {"weight_decay": 0.0}),
    "weight decay 1": ("#D55E00", {"weight_decay": 1.0}),
}
"""Setting -> its colour, and what it changes: the learning rate as a multiple of the recipe's."""


def wanted(given: argparse.Namespace) -> dict[str, list[RunConfig]]:
    """The runs of every setting, at both initialisations."""
    axes = {"gamma": list(INITIALISATIONS)}
    lr = conflict_runs(given, axes)[0].train_config.lr
    runs = {}
    for setting, (_, changes) in SETTINGS.items():
        fields: dict[str, Any] = {**changes, "n_checkpoints": N_CHECKPOINTS}
        if "lr" in changes:
            fields["lr"] = changes["lr"] * float(lr)
        runs[setting] = conflict_runs(given, axes, **fields)
    return runs


def trajectory(cell: Cell) -> dict[str, list[float]]:
    """`step`, and every measure there, at the checkpoints of a run."""
    assert cell.path is not None
    found: dict[str, list[float]] = {name: [] for name in ("step", *MEASURES)}
    for path in sorted((cell.path / "checkpoints").glob("step_*.pt")):
        checkpoint = load_checkpoint(path)
        model = checkpoint.build_model()
        found["mean_abs_cosine"].append(q_condensation(model).mean_abs_cosine)
        rank = stable_rank(model).w_q_normalized
        assert rank is not None and checkpoint.step is not None
        found["step"].append(checkpoint.step)
        found["stable_rank"].append(rank)
        found["components"].append(components_for(embedding_pca(model, cell.run.task).spectrum))
    return found


def measure(cells: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    """Every run's trajectory, and where it begins, turns and ends.

    Args:
        cells: setting -> its runs.

    Returns:
        `runs`, and for each measure `summary`: setting -> gamma -> seed -> its value at the `start` and the
        `end`, and the `least` and the `most` on the way with their steps.
    """
    runs = [
        {
            "setting": setting,
            "gamma": cell.run.model_config.gamma,
            "seed": cell.run.train_config.seed,
            "cell": cell.id,
            **answers(cell),
            **trajectory(cell),
        }
        for setting, own in cells.items()
        for cell in own
    ]
    summary: dict[str, Any] = {}
    for run in runs:
        for name in MEASURES:
            values = run[name]
            least, most = (pick(range(len(values)), key=values.__getitem__) for pick in (min, max))
            by_gamma = summary.setdefault(name, {}).setdefault(run["setting"], {})
            by_gamma.setdefault(run["gamma"], {})[run["seed"]] = {
                "start": values[0],
                "end": values[-1],
                "least": values[least],
                "least_step": run["step"][least],
                "most": values[most],
                "most_step": run["step"][most],
            }
    return {"summary": summary, "runs": runs}


def draw(numbers: Mapping[str, Any]) -> go.Figure:
    """The measures over the step, from step 1 on a log scale: a column an initialisation, a line a run."""
    runs = numbers["runs"]
    gammas = sorted({run["gamma"] for run in runs}, reverse=True)
    figure = make_subplots(
        rows=len(MEASURES),
        cols=len(gammas),
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        vertical_spacing=0.05,
        subplot_titles=[f"{INITIALISATIONS[gamma]} initialisation (gamma {gamma:g})" for gamma in gammas],
    )
    named: set[str] = set()
    for row, (name, label) in enumerate(MEASURES.items(), start=1):
        for run in runs:
            from_one = run["step"].index(next(step for step in run["step"] if step > 0))
            figure.add_scatter(
                x=run["step"][from_one:],
                y=run[name][from_one:],
                name=run["setting"],
                legendgroup=run["setting"],
                showlegend=run["setting"] not in named,
                line={"color": SETTINGS[run["setting"]][0], "width": 1.5},
                hovertext=f"seed {run['seed']}",
                row=row,
                col=gammas.index(run["gamma"]) + 1,
            )
            named.add(run["setting"])
        figure.update_yaxes(rangemode="tozero", row=row)
        figure.update_yaxes(title=label, row=row, col=1)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_xaxes(title="training step", row=len(MEASURES))
    figure.update_layout(legend={"orientation": "h", "y": -0.09, "yanchor": "top"})
    figure.update_annotations(font_size=12)
    figure = styled(figure, "Complexity during training, one line per run", width=900, height=860)
    return figure.update_layout(margin={"t": 80, "l": 80})


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = common.options(__doc__).parse_args()
    runs = wanted(given)
    cells = iter(common.trained(given, [run for own in runs.values() for run in own]))
    numbers = measure({setting: [next(cells) for _ in own] for setting, own in runs.items()})
    common.write(given, "complexity_over_training", draw(numbers), numbers)


if __name__ == "__main__":
    main()
