"""What `anchorlens classify` takes: time and memory of the whole command, and of the imports alone.

    python examples/benchmarks/classify.py [CKPT ...] [--turns 3]

Without checkpoints the four shipped ones are taken. The rows are whole processes, one after the other in
turns: the imports alone; the first checkpoint; the same with a report; and ten checkpoints (those given, over
and over), so that what is repeated shows.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens.training import checkpoints

IMPORTS = "import anchorlens.verdict, transformer_lens, sklearn.metrics, plotly.graph_objects"
N_MANY = 10


def run(command: Sequence[str]) -> tuple[float, float]:
    """Seconds and peak memory in MiB of a process that must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Read the command line, measure, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("checkpoints", type=Path, nargs="*")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    paths = [str(path) for path in given.checkpoints or checkpoints.shipped()]
    classify = [sys.executable, "-m", "anchorlens", "classify", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "imports alone": [sys.executable, "-c", IMPORTS],
            "classify": [*classify, paths[0]],
            "classify --report": [*classify, paths[0], "--report", f"{folder}/report.html"],
            f"classify, {N_MANY} checkpoints": [*classify, *itertools.islice(itertools.cycle(paths), N_MANY)],
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(given.turns):
            for name, command in commands.items():
                measured[name].append(run(command))
    imports = statistics.median(seconds for seconds, _ in measured["imports alone"])
    shown = Table("what", "seconds", "over the imports", "peak memory", box=box.MARKDOWN)
    for name, turns in measured.items():
        seconds = [each for each, _ in turns]
        middle = statistics.median(seconds)
        shown.add_row(
            name,
            f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
            f"{middle - imports:.1f}",
            f"{max(memory for _, memory in turns):,.0f} MiB",
        )
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
