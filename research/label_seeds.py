"""How often the probe verdict gives the same label with other seeds of the costly probes.

    python research/label_seeds.py
    python research/label_seeds.py --report

Trains ten runs of the second zoo again, every sixteenth of those in Phase 2 or 3 that the verdict is fit on,
and takes the probe verdict of each with ten seeds; then of the shipped Phase 3 checkpoint. A run in the
table is not made again. An aim of calibration/pair_groups.md is the same label with 9 of 10 seeds for 9 of 10
models.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from anchorlens import Checkpoint, classify, load_checkpoint, train
from anchorlens.training import checkpoints
from pair_groups import planned_runs, rows_of

TABLE = Path(__file__).parent / "calibration/label_seeds.jsonl"
SEEDS, EVERY, N_RUNS = range(10), 16, 10
SHIPPED = "shipped: phase3"


def models() -> Iterator[tuple[str, Callable[[], Checkpoint]]]:
    """Each name, and the function that makes its checkpoint."""
    for name, planned in [*planned_runs().items()][: EVERY * N_RUNS : EVERY]:
        yield name, lambda run=planned.run: train(*run, progress=False).checkpoint
    yield SHIPPED, lambda: load_checkpoint(checkpoints.shipped()[-1])


def measured(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The label with each seed, with what decides it."""
    found = []
    for seed in SEEDS:
        began = time.process_time()
        by_probes = classify(checkpoint, seed=seed).by_probes
        values = {one.reading: one for one in by_probes.evidence}
        survival = values.get("survival.survival")
        found.append({
            "label": by_probes.phase.label,
            "probabilities": by_probes.probabilities,
            "survival": survival and survival.value,
            "twice": bool(survival and "two measurements" in survival.meaning),
            "seconds": time.process_time() - began,
        })  # fmt: skip
    return found


def report() -> None:
    """Print how often each model has its most frequent label, and in how many models with 9 of 10 seeds."""
    rows, n_steady = rows_of(TABLE), 0
    for row in rows:
        labels = Counter(one["label"] for one in row["seeds"])
        label, n = labels.most_common(1)[0]
        n_steady += n >= len(SEEDS) - 1 and row["name"] != SHIPPED
        twice = sum(one["twice"] for one in row["seeds"])
        seconds = sorted(one["seconds"] for one in row["seeds"])
        others = ", ".join(f"{other} {k}" for other, k in labels.items() if other != label)
        print(
            f"{row['name']} ({row['by_behaviour']}): {label} with {n} of {len(SEEDS)} seeds"
            f"{f' ({others})' if others else ''}; survival twice with {twice}; "
            f"{seconds[len(seconds) // 2]:.0f} s, at most {seconds[-1]:.0f} s"
        )
    n_again = sum(row["name"] != SHIPPED for row in rows)
    print(f"the same label with {len(SEEDS) - 1} seeds or more: {n_steady} of {n_again} runs of the zoo")


def main() -> None:
    """Read the command line, measure what is missing or report."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--report", action="store_true", help="print what was measured")
    if parser.parse_args().report:
        report()
        return
    torch.set_num_threads(1)
    there = {row["name"] for row in rows_of(TABLE)}
    for name, made in models():
        if name not in there:
            checkpoint = made()
            by_behaviour = checkpoint.evaluate().phase.label
            row = {"name": name, "by_behaviour": by_behaviour, "seeds": measured(checkpoint)}
            with TABLE.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(name, flush=True)


if __name__ == "__main__":
    main()
