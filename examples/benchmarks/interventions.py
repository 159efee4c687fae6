"""What windows, rescaling and penalties cost: an update with each, over one without, in one run.

    python examples/benchmarks/interventions.py [--preset quick] [--turns 5] [--updates 20] [--json FILE]

The recipes take turns, so that a noisy machine is noisy for all. A number is the median over the turns of the
CPU time of an update, over that of the plain recipe in the same turn; with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from anchorlens import preset
from anchorlens.engine import engine_of, numeric_settings
from anchorlens.files.checkpoint import training_set

RECIPES = {
    "plain": {},
    "weight decay in a window": {"weight_decay": "0.01 0:1=1.0..0.1"},
    "learning rate in a window": {"lr": "0.001 0:1=0.002..0.001"},
    "a decay for each part": {"weight_decay_qk": 1.0, "weight_decay_mlp": "0 0:1=0.5"},
    "rescaled four times": {"rescale": "all=0.99@5 qk=1.01@9 vo=1.01@13 mlp=1.01@17"},
    "W_Q frozen": {"freeze": "W_Q"},
    "W_Q of rank 2": {"max_rank": "W_Q=2"},
    "nuclear norm of W_Q and W_K": {"penalty": "nuclear:qk=0.001"},
    "stable rank of W_Q and W_K": {"penalty": "stable_rank:qk=0.001"},
    "nuclear norm of every matrix": {"penalty": "nuclear:all=0.001"},
}
"""What is timed -> the fields of the recipe."""


def measure(name: str, turns: int, updates: int) -> dict[str, dict[str, float]]:
    """Recipe -> CPU ms of an update (median) and its ratio to the plain one (median, least, most)."""
    run = preset(name)
    data = training_set(run.task, run.train_config)
    stacks = {}
    for title, fields in RECIPES.items():
        own = run._replace(train_config=replace(run.train_config, **fields))
        stacks[title] = engine_of(own)([own], [data], torch.device("cpu"))
        stacks[title].advance(1)
    seconds = {title: [] for title in RECIPES}
    for _ in range(turns):
        for title, stack in stacks.items():
            began = time.process_time()
            stack.advance(stack.step + updates)
            seconds[title].append((time.process_time() - began) / updates)
    found = {}
    for title, own in seconds.items():
        ratios = [one / plain for one, plain in zip(own, seconds["plain"], strict=True)]
        found[title] = {
            "ms": 1e3 * statistics.median(own),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
        }
    return found


def main() -> None:
    """Read the command line, measure, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--updates", type=int, default=20, help="of a recipe in a turn")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with numeric_settings(torch.device("cpu"), 1, tf32=False):
        found = measure(given.preset, given.turns, given.updates)
    table = Table("recipe", "CPU ms of an update", "over the plain one", title=given.preset)
    for title, one in found.items():
        table.add_row(
            title, f"{one['ms']:.0f}", f"{one['ratio']:.2f} ({one['least']:.2f} to {one['most']:.2f})"
        )
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
