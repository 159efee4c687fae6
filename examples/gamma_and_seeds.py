"""One seed is not a result: four initialization rates, three seeds each, trained side by side.

    python examples/gamma_and_seeds.py [--gamma 0.3 0.5 0.7 0.8] [--seed 0 1 2] [--steps 600]

Prints a line for each model and the mean over seeds (5,000 training sequences; about two minutes on 2 cores).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from anchorlens import preset, train_many


def main(
    gammas: Sequence[float], seeds: Sequence[int], steps: int, **fields: Any
) -> dict[float, list[float]]:
    """OOD accuracies (0..1) of each gamma, a number for each seed.

    Args:
        gammas: initialization rates.
        seeds: of weights, data and noise.
        steps: of the optimizer.
        **fields: of the configurations, in place of the preset's.
    """
    cells = [(gamma, seed) for gamma in gammas for seed in seeds]
    fields = {"n_samples": 5_000, "batch_size": 256, "n_checkpoints": 0, **fields}
    runs = [preset("quick", gamma=gamma, seed=seed, steps=steps, **fields) for gamma, seed in cells]
    accuracies: dict[float, list[float]] = {}
    for (gamma, seed), result in zip(cells, train_many(runs), strict=True):
        print(f"gamma {gamma:g}, seed {seed}: {result.behaviour}")
        assert result.behaviour.ood is not None
        accuracies.setdefault(gamma, []).append(result.behaviour.ood.value)
    for gamma, values in accuracies.items():
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        print(f"gamma {gamma:g}: OOD {statistics.fmean(values):.2f}{spread} over {len(values)} seeds")
    return accuracies


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.8])
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    main(given.gamma, given.seed, given.steps)
