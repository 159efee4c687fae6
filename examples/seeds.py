"""Train one preset over several seeds and print what each of them became; one seed is not a result.

python examples/seeds.py --preset phase3 --seeds 0 1 2 [--gamma 0.7] [--steps 1000] [--workers 2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.table import Table

from anchorlens.behaviour import Behaviour


def run(preset_name: str, fields: dict[str, Any]) -> tuple[Behaviour, int, float]:
    """Train and measure one run; behaviour, steps taken and seconds."""
    from anchorlens import preset, train

    start = time.perf_counter()
    result = train(*preset(preset_name, **fields), progress=False)
    return result.behaviour, result.checkpoint.step, time.perf_counter() - start


def table(preset_name: str, seeds: Sequence[int], results: Sequence[tuple[Behaviour, int, float]]) -> Table:
    """A row for every seed, and the mean of the numbers."""
    names = ("train", "id", "ood", "commutativity")
    shown = Table("seed", *names, "phase", "steps", "seconds", title=preset_name)
    columns: list[list[float]] = [[] for _ in names]
    for seed, (behaviour, steps, seconds) in zip(seeds, results, strict=True):
        cells = []
        for name, column in zip(names, columns, strict=True):
            accuracy = getattr(behaviour, name)
            cells.append("-" if accuracy is None else f"{accuracy.value:.3f}")
            if accuracy is not None:
                column.append(accuracy.value)
        shown.add_row(str(seed), *cells, behaviour.phase.label, str(steps), f"{seconds:.0f}")
    means = [f"{sum(column) / len(column):.3f}" if column else "-" for column in columns]
    shown.add_row("mean", *means, "", "", "")
    return shown


def main() -> None:
    """Read the command line, train every seed, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--workers", type=int, default=1, help="processes side by side, a thread each")
    given = parser.parse_args()
    fields = {name: getattr(given, name) for name in ("gamma", "steps") if getattr(given, name) is not None}
    if given.workers > 1:
        fields["threads"] = 1
    # new interpreters rather than forks: a fork of a process with torch's threads can hang
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run, given.preset, {**fields, "seed": seed}) for seed in given.seeds]
        results = [future.result() for future in futures]
    Console().print(table(f"{given.preset} {fields or ''}", given.seeds, results))


if __name__ == "__main__":
    main()
