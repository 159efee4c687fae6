"""How much of attention is padding: in one group, in our groups, and if every batch had one length.

    python examples/benchmarks/padding.py [--preset scan prontoqa cogs] [--data DIR] [--batches 200]

Counted, not timed: operations of attention over those of the linear maps of a layer, which see no padding.
By so much as the last column is below the one before, batches of sequences of like length (buckets) could
save at most.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from anchorlens.engine.ragged import GROUPS
from anchorlens.recipes.presets import preset
from anchorlens.recipes.run_config import RunConfig

_N_DRAWN = 2000


def shares(run: RunConfig, n_batches: int, seed: int = 0) -> dict[str, float]:
    """Operations of attention over those of linear maps, mean over random batches of a run."""
    model, size = run.model_config, run.train_config.batch_size
    lengths = run.task.training_set(_N_DRAWN, seed).lengths.numpy()
    rng = np.random.default_rng(seed)
    heads = model.n_heads * model.d_head
    per_row = 2 * model.d_model * (4 * heads + 2 * model.d_mlp)
    squares, rows = {"one group": 0, "groups": 0, "one length": 0}, 0
    for _ in range(n_batches):
        batch = np.sort(rng.choice(lengths, size))
        rows += batch.sum()
        squares["one group"] += size * batch[-1] ** 2
        squares["groups"] += sum(len(group) * group[-1] ** 2 for group in np.array_split(batch, GROUPS))
        squares["one length"] += (batch**2).sum()
    return {name: float(4 * heads * n / (rows * per_row)) for name, n in squares.items()}


def main() -> None:
    """Read the command line, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", nargs="+", default=["scan", "prontoqa"])
    parser.add_argument("--data", default="", help="folder of the published files, of --preset cogs")
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    table = Table(
        "preset", "one group", f"{GROUPS} groups (ours)", "one length", title="attention / linear maps"
    )
    for name in given.preset:
        found = shares(preset(name, **({"data": given.data} if name == "cogs" else {})), given.batches)
        table.add_row(name, *(f"{share:.3f}" for share in found.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
