"""Train the zoo of the verdicts by the inside, and keep what is measured of each run in one table.

    python research/zoo.py [--table research/calibration/second_zoo.parquet] [--group fit] [--hours 2]

A run that is in the table is not trained again, on any machine; the same command continues. Runs that are fit
on come first, then those newly held out, those opened before, and last those in conflict. The last checkpoint
of every run is kept in one file outside of the repository (--archive), which the same command with an empty
--table makes anew.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import traceback
import zipfile
from concurrent.futures import as_completed
from pathlib import Path

import pandas as pd
from loky import ProcessPoolExecutor

from anchorlens.training.child_processes import end_with_parent, safe_children
from calibration.numbers import trained
from calibration.runs import AGAIN, GROUPS, SECOND, Planned, runs

TABLE = Path(__file__).parent / "calibration/zoo.parquet"
"""What the calibration is fit on and measured on."""
SECOND_TABLE = TABLE.with_name("second_zoo.parquet")
"""The zoo made anew and enlarged, which the calibration will be fit on when its runs are trained."""
ARCHIVE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anchorlens/zoo.zip"
AT_ONCE = 4
"""Runs after which the table is written."""
KEPT_AS_THEY_ARE = ("gamma", "weight_decay", "lr", "moment")
"""Columns that are not rounded to 32 bits."""


def work(name: str, planned: Planned) -> tuple[list[dict[str, object]], bytes] | str:
    """What is measured of a run and its checkpoint; what went wrong where something did."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows, path = trained(name, planned, Path(folder))
        except Exception:
            return f"{name}: {traceback.format_exc()}"
        return rows, path.read_bytes()


def extended(table: Path, rows: list[dict[str, object]]) -> None:
    """The table with more rows; what was there stays until the new file is whole."""
    found = pd.DataFrame(rows)
    if table.exists():
        found = pd.concat([pd.read_parquet(table), found], ignore_index=True)
    numbers = found.select_dtypes("float64").columns.difference(KEPT_AS_THEY_ARE)
    found[numbers] = found[numbers].astype("float32")
    partial = table.with_suffix(".partial")
    found.to_parquet(partial, compression="zstd", index=False)
    partial.replace(table)


def main() -> None:
    """Read the command line, train and measure what is missing."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--table", type=Path, default=SECOND_TABLE)
    parser.add_argument("--archive", type=Path, default=ARCHIVE, help="of the last checkpoints")
    parser.add_argument(
        "--group", choices=[*GROUPS, *AGAIN, *SECOND], action="append", help="only these groups"
    )
    parser.add_argument("--first", type=int, help="only so many of the runs")
    parser.add_argument("--workers", type=int, help="processes; one for each core if left out")
    parser.add_argument("--hours", type=float, default=float("inf"), help="begin nothing after these")
    given = parser.parse_args()
    ends = time.monotonic() + 3600 * given.hours
    wanted = {name: one for name, one in runs().items() if given.group is None or one.group in given.group}
    wanted = dict(list(wanted.items())[: given.first])
    there = set(pd.read_parquet(given.table, columns=["name"])["name"]) if given.table.exists() else set()
    missing = [(name, one) for name, one in wanted.items() if name not in there]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in the table", flush=True)
    given.archive.parent.mkdir(parents=True, exist_ok=True)
    env, parent = {"OMP_NUM_THREADS": "1"}, (os.getpid(),)
    with (
        safe_children(),
        ProcessPoolExecutor(given.workers, env=env, initializer=end_with_parent, initargs=parent) as pool,
    ):
        futures = [pool.submit(work, *named) for named in missing]
        ended = []
        for future in as_completed(futures):
            if not future.cancelled():
                ended.append(future.result())
            if len(ended) == AT_ONCE:
                take_in(ended, given)
                ended = []
            if time.monotonic() > ends:
                for one in futures:
                    one.cancel()
        take_in(ended, given)


def take_in(ended: list[tuple[list[dict[str, object]], bytes] | str], given: argparse.Namespace) -> None:
    """Write what was measured into the table, and the checkpoints into the archive."""
    done = [one for one in ended if not isinstance(one, str)]
    with zipfile.ZipFile(given.archive, "a") as archive:
        held = set(archive.namelist())
        for rows, checkpoint in done:
            member = f"{rows[0]['name']}.safetensors"
            if member not in held:
                archive.writestr(member, checkpoint)
    if done:
        extended(given.table, [row for rows, _ in done for row in rows])
    print(
        f"{len(done)} more runs in the table",
        *(one for one in ended if isinstance(one, str)),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
