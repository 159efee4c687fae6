"""Condensation, stable rank and embedding along training, at three initialization scales and three seeds.

    python examples/along_training.py --out docs/images/gallery [--runs runs/along]

Trains nine small models (a minute of one core each), probes fourteen checkpoints of each, and writes
along_training.svg and along_training.csv. A run that is there already is taken as it is. Chrome or Chromium
and kaleido (extra [export]) draw the picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import plots, preset, probes, train_many

GAMMAS, SEEDS = (0.3, 0.5, 0.8), (0, 1, 2)
PROBES = ("q_condensation", "stable_rank", "embedding_pca")
DASHES = {"train": "dot", "id": "dash", "ood": "solid"}
RECIPE = {
    **{"d_model": 64, "d_mlp": 128, "n_samples": 6720, "batch_size": 256},
    **{"lr": 2e-3, "steps": 1000, "n_checkpoints": 14, "eval_every": 1000},
}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/along"))
    given = parser.parse_args()
    outs = {(gamma, seed): given.runs / f"gamma_{gamma}_seed_{seed}" for gamma in GAMMAS for seed in SEEDS}
    runs = [preset("quick", gamma=gamma, seed=seed, **RECIPE) for gamma, seed in outs]
    train_many(runs, outs=list(outs.values()), resume=True)
    parts = []
    for (gamma, _), out in outs.items():
        found = probes.along(out, PROBES)
        parts.append(found.to_frame())
        parts[-1].insert(1, "group", f"gamma {gamma}")
    table = pd.concat(parts)
    given.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(given.out / "along_training.csv", index=False)
    plots.save(over_seeds(table), given.out / "along_training.svg")


def over_seeds(table: pd.DataFrame) -> go.Figure:
    """Draw the first reading of each probe and the accuracies: the mean over seeds, and their range."""
    first = [next(name for name in table if str(name).startswith(f"{probe}.")) for probe in PROBES]
    figure = make_subplots(rows=len(first) + 1, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for row, names in enumerate([*([name] for name in first), [*DASHES]], 1):
        for (group, part), colour in zip(table.groupby("group"), plots.CATEGORIES, strict=False):
            for name in names:
                values = part.groupby("step")[name].agg(["mean", "min", "max"])
                steps, line = values.index.to_list(), {"color": colour, "dash": DASHES.get(name, "solid")}
                figure.add_scatter(
                    x=steps + steps[::-1], y=[*values["max"], *values["min"][::-1]], fill="toself",
                    fillcolor=colour, opacity=0.18, line={"width": 0}, hoverinfo="skip", showlegend=False,
                    row=row, col=1,
                )  # fmt: skip
                figure.add_scatter(
                    x=steps, y=values["mean"], name=str(group), line=line, mode="lines+markers",
                    marker={"size": 4}, showlegend=row == 1, row=row, col=1,
                )  # fmt: skip
        title = "answers" if row > len(first) else names[0].replace(".", ":<br>")
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_xaxes(type="log", exponentformat="none")
    answers = "answers: train dotted, id dashed, ood solid"
    figure.update_xaxes(title=f"optimizer step<br><sup>{answers}</sup>", row=len(first) + 1, col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.08, "yanchor": "top"})
    return plots.styled(figure, "Along training", height=920).update_layout(margin_b=110)


if __name__ == "__main__":
    main()
