"""What a sweep costs beside bare training: the same runs through `train_many` and through `sweep`.

    python examples/benchmarks/sweep.py --cells 8 --turns 2

Both write every run's folder; a sweep also starts Dask's workers, classifies each cell and measures its
weights. The two take turns, and the ratios are of medians. The start of the workers is measured by a sweep of
two runs of one step, and given apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens import train_many
from anchorlens.extras.sweep import grid, sweep
from anchorlens.recipes.run_config import RunConfig

ENGINES = ("serial", "local")


def measure(runs: Sequence[RunConfig], engine: str, turns: int) -> dict[str, Any]:
    """Seconds of both ways, every turn, and of starting the sweep's engine."""
    workers = 1 if engine == "serial" else None
    alone = [run._replace(train_config=replace(run.train_config, threads=1)) for run in runs]
    short = [run._replace(train_config=replace(run.train_config, steps=1, epochs=None)) for run in runs[:2]]

    def bare(out: Path) -> None:
        outs = [out / str(k) for k in range(len(alone))]
        train_many(alone, outs=outs, workers=workers, progress=False)

    def swept(chosen: Sequence[RunConfig]) -> Callable[[Path], object]:
        return lambda out: sweep(chosen, out, engine=engine, progress=False)

    ways: dict[str, Callable[[Path], object]] = {"bare": bare, "sweep": swept(runs), "start": swept(short)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                way(Path(folder) / "out")
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "engine": engine,
        "cells": len(runs),
        "seconds": seconds,
        "ratio": medians["sweep"] / medians["bare"],
        "ratio_without_start": (medians["sweep"] - medians["start"]) / medians["bare"],
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A row for each engine."""
    shown = Table(
        "engine", "cells", "bare, s", "sweep, s", "start, s", "ratio", "without start", box=box.MARKDOWN
    )
    for row in rows:
        medians = [f"{statistics.median(each):.1f}" for each in row["seconds"].values()]
        ratios = [f"{row[name]:.3f}" for name in ("ratio", "ratio_without_start")]
        shown.add_row(row["engine"], str(row["cells"]), *medians, *ratios)
    return shown


def main() -> None:
    """Read the command line, measure, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    runs = grid("quick", {"seed": range(given.cells)}, gamma=0.7, steps=given.steps, n_checkpoints=0)
    rows = [measure(runs, engine, given.turns) for engine in given.engine]
    Console(width=140).print(table(rows))
    if given.json:
        given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
