"""How fast a dataset of many mappings loads: python examples/benchmarks/audit_loading.py [--rows N ...].

Each size is read in a process of its own, which also says how much memory it took.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

CHAINS = ((1, 1), (1, 2), (2, 1), (2, 2))
ROWS = (10_000, 30_000, 99_000, 396_000)


def write(path: Path, n_rows: int) -> None:
    """A CSV of so many mappings: up to 99,000 rows a key for each, else every key with all four chains."""
    per_key = 1 if n_rows <= 99_000 else len(CHAINS)
    rows = [
        (1000 + row // per_key, *CHAINS[row % len(CHAINS)], 1000 + row // per_key + 3)
        for row in range(n_rows)
    ]
    path.write_text("key,a1,a2,target\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")


def load(path: Path) -> None:
    """Read a file; print seconds and MB as JSON."""
    from anchorlens.extras.audit import read_csv

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    mappings = read_csv(path)
    seconds = time.perf_counter() - start
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"mappings": len(mappings), "seconds": seconds, "megabytes": (loaded - before) / 1024}))


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--load", type=Path, help="read this file alone")
    options = parser.parse_args()
    if options.load is not None:
        load(options.load)
        return
    table = Table("mappings", "seconds", "rows/s", "MB more")
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in options.rows:
            path = Path(folder) / f"{n_rows}.csv"
            write(path, n_rows)
            command = [sys.executable, __file__, "--load", str(path)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds = found["seconds"]
            table.add_row(
                f"{found['mappings']:,}",
                f"{seconds:.2f}",
                f"{n_rows / seconds:,.0f}",
                f"{found['megabytes']:.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
