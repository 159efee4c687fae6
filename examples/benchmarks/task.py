"""How long a million sequences take on one core: python examples/benchmarks/task.py [--json]."""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
from rich.console import Console
from rich.table import Table

from anchorlens import AnchorTask

TASKS = {
    "reasoning": AnchorTask(),
    "conflict": AnchorTask(regime="conflict"),
    "noise obeys the split": AnchorTask(noise_obeys_split=True),
    "chains of 4": AnchorTask(chain_length=4, key_min=40),
}


def measure(n: int = 1_000_000, repeats: int = 5) -> dict[str, float]:
    """Median seconds for `n` training sequences of each task."""
    torch.set_num_threads(1)
    medians = {}
    for name, task in TASKS.items():
        seconds = []
        for seed in range(repeats):
            start = time.perf_counter()
            task.sample(n, seed=seed)
            seconds.append(time.perf_counter() - start)
        medians[name] = statistics.median(seconds)
    return medians


def main() -> None:
    """Print the medians."""
    medians = measure()
    if "--json" in sys.argv:
        print(json.dumps({"sequences": 1_000_000, "seconds": medians}))
        return
    table = Table("task", "seconds for a million sequences (median of 5)")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
