"""Train the zoo of the mechanism verdict in parts, and keep what is measured of each run in one table.

    python research/zoo.py --out runs/zoo [--table research/calibration/zoo.parquet] [--first 200]
        [--group fit] [--hours 2]

A run that is in the table is not trained again, on any machine; the same command continues. Runs come in an
order that mixes the groups. Of what is missing, the runs that take longest come last.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import Executor
from pathlib import Path

import pandas as pd
from loky import ProcessPoolExecutor

from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep import Cell, sweep
from anchorlens.training.child_processes import end_with_parent, safe_children
from calibration.numbers import measured
from calibration.runs import GROUPS, group_of, runs

TABLE = Path(__file__).parent / "calibration/zoo.parquet"
KNOWN = (
    "seed",
    "variant",
    "n_layers",
    "n_heads",
    "d_model",
    "gamma",
    "weight_decay",
    "lr",
    "n_samples",
    "regime",
)
"""What a row says of its run."""
AT_ONCE = 72
"""Runs that are trained, then measured and written."""
LONG = 75e6
"""Steps times layers times d_model squared, above which a run comes last: three in ten, two thirds of the
time."""


def is_long(run: RunConfig) -> bool:
    """Whether a run is one of those that take longest."""
    return run.train_config.total_steps * run.model_config.n_layers * run.model_config.d_model**2 > LONG


def rows_of(name: str, cell: Cell) -> list[dict[str, object]]:
    """What stands in the table of one run: its name and group, what it is, and a row for each moment."""
    fields = cell.fields
    about = {"name": name, "group": group_of(name), **{key: fields[key] for key in KNOWN}}
    return [{**about, **row} for row in measured(cell)]


def extended(table: Path, rows: list[dict[str, object]]) -> None:
    """The table with more rows; what was there stays until the new file is whole."""
    found = pd.DataFrame(rows)
    if table.exists():
        found = pd.concat([pd.read_parquet(table), found], ignore_index=True)
    numbers = found.select_dtypes("float64").columns.difference(["gamma", "weight_decay", "lr", "moment"])
    found[numbers] = found[numbers].astype("float32")
    partial = table.with_suffix(".partial")
    found.to_parquet(partial, compression="zstd", index=False)
    partial.replace(table)


def main() -> None:
    """Read the command line, train and measure what is missing, a few runs at a time."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--first", type=int, help="only so many of the zoo's runs")
    parser.add_argument("--group", choices=GROUPS, help="only runs of this group")
    parser.add_argument("--engine", help="of `anchorlens sweep`")
    parser.add_argument("--hours", type=float, default=float("inf"), help="begin nothing after these")
    given = parser.parse_args()
    began = time.monotonic()
    wanted = {
        name: run for name, run in runs().items() if given.group is None or group_of(name) == given.group
    }
    wanted = dict(list(wanted.items())[: given.first])
    there = set(pd.read_parquet(given.table, columns=["name"])["name"]) if given.table.exists() else set()
    missing = [(name, run) for name, run in wanted.items() if name not in there]
    missing.sort(key=lambda named: is_long(named[1]))
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in the table")
    with (
        safe_children(),
        ProcessPoolExecutor(
            env={"OMP_NUM_THREADS": "1"}, initializer=end_with_parent, initargs=(os.getpid(),)
        ) as measuring,
    ):
        for k in range(0, len(missing), AT_ONCE):
            if time.monotonic() - began > 3600 * given.hours:
                break
            train_and_measure(missing[k : k + AT_ONCE], given, measuring)


def train_and_measure(
    some: list[tuple[str, RunConfig]], given: argparse.Namespace, measuring: Executor
) -> None:
    """Train a few runs, measure those that did not fail, and write them into the table."""
    cells = list(sweep([run for _, run in some], given.out, engine=given.engine))
    done = [(name, cell) for (name, _), cell in zip(some, cells, strict=True) if cell.done]
    futures = [measuring.submit(rows_of, name, cell) for name, cell in done]
    extended(given.table, [row for future in futures for row in future.result()])
    failed = [f"{name}: {cell.error}" for (name, _), cell in zip(some, cells, strict=True) if not cell.done]
    print(f"{len(done)} more runs in the table", *failed, sep="\n", flush=True)


if __name__ == "__main__":
    main()
