"""What `anchorlens classify` takes: processor time and memory of the command, and of the imports alone.

    python examples/benchmarks/classify.py [CKPT ...] [--turns 3]

Without checkpoints the four shipped ones are taken. The rows are whole processes, one after the other in
turns: the imports alone; the command for each checkpoint; the same without the costly probes for the last
one, and with a report; and ten checkpoints (the given ones, repeated), which shows what every checkpoint
costs without costly probes. Processor time changes less than the clock's while other work runs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens.training import checkpoints

IMPORTS = "import anchorlens.verdict, transformer_lens"
N_MANY = 10


def run(command: Sequence[str]) -> tuple[float, float]:
    """Processor seconds and peak memory in MiB of a process that must succeed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Read the command line, measure, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("checkpoints", type=Path, nargs="*")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    paths = [str(path) for path in given.checkpoints or checkpoints.shipped()]
    classify = [sys.executable, "-m", "anchorlens", "classify", "--json"]
    quick, many = [*classify, "--quick"], itertools.islice(itertools.cycle(paths), N_MANY)
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "imports alone": [sys.executable, "-c", IMPORTS],
            **{f"classify {Path(path).name}": [*classify, path] for path in paths},
            "classify --quick": [*quick, paths[-1]],
            "classify --quick --report": [*quick, paths[-1], "--report", f"{folder}/report.html"],
            f"classify --quick, {N_MANY} checkpoints": [*quick, *many],
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(given.turns):
            for name, command in commands.items():
                measured[name].append(run(command))
    imports = statistics.median(seconds for seconds, _ in measured["imports alone"])
    shown = Table("what", "processor seconds", "over the imports", "peak memory", box=box.MARKDOWN)
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
