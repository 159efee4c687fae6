"""Condensation, stable rank and embedding along training, at three initialization scales and three seeds.

    python examples/along_training.py --out docs/images/gallery [--runs runs/along]

Trains nine small models (a minute of one core each), probes fourteen checkpoints of each, and writes
along_training.svg and along_training.csv. A run that is there already is taken as it is. Chrome or Chromium
and kaleido (extra [export]) draw the picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchorlens import plots, preset, probes, train_many

GAMMAS, SEEDS = (0.3, 0.5, 0.8), (0, 1, 2)
PROBES = ("q_condensation", "stable_rank", "embedding_pca")
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
    outs, runs = [], []
    for gamma in GAMMAS:
        for seed in SEEDS:
            outs.append(given.runs / f"gamma_{gamma}_seed_{seed}")
            runs.append(preset("quick", gamma=gamma, seed=seed, **RECIPE))
    train_many(runs, outs=outs, resume=True)
    found = probes.along(outs, PROBES)
    given.out.mkdir(parents=True, exist_ok=True)
    found.table(given.out / "along_training.csv")
    figure = found.plot()
    figure.update_xaxes(type="log", exponentformat="none")
    plots.save(figure, given.out / "along_training.svg")


if __name__ == "__main__":
    main()
