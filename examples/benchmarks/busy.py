"""What a command costs on a busy machine: alone and beside busy processes, by how its threads wait.

python examples/benchmarks/busy.py [--neighbours 2] [--turns 3] [--settings NAME ...] [--json FILE]
                                   [-- train --steps 150 --out {folder}/run]

What follows `--` is a command of anchorlens; {folder} is a folder that is new each time. Left out: `classify`
of a shipped checkpoint with a report. CPU seconds are user and system together, of the command and its
children, the imports among them; a ratio is taken within a turn, and the median over the turns is printed.
The settings take turns, so that a machine that drifts drifts for all. A neighbour is a process that counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

SETTINGS = {
    "as libgomp comes": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "short spin": {"GOMP_SPINCOUNT": "1000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""Name -> what is in the environment; the first is what the others are compared with."""
CONCERNED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
SHIPPED = Path(__file__).parents[2] / "anchorlens/training/checkpoints/phase3.pt"
CLASSIFY = ["classify", str(SHIPPED), "--report", "{folder}/report.html"]


class Cost(NamedTuple):
    """What a command took, in seconds."""

    cpu: float
    wall: float


def cost(arguments: list[str], setting: dict[str, str]) -> Cost:
    """Run the command once."""
    environment = {name: value for name, value in os.environ.items() if name not in CONCERNED}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "anchorlens", *(a.replace("{folder}", folder) for a in arguments)]
        started = time.perf_counter()
        with subprocess.Popen(
            command, env=environment | setting, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            words = process.stderr.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {words}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - started)


@contextlib.contextmanager
def neighbours(n: int) -> Iterator[None]:
    """So many processes that each want a whole core."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(arguments: list[str], names: list[str], n: int, turns: int) -> dict[str, dict[str, list[Cost]]]:
    """Setting -> `alone` and `beside` -> the cost in every turn."""
    costs: dict[str, dict[str, list[Cost]]] = {name: {"alone": [], "beside": []} for name in names}
    for _ in range(turns):
        for where, busy in (("alone", 0), ("beside", n)):
            with neighbours(busy):
                for name in names:
                    found = cost(arguments, SETTINGS[name])
                    costs[name][where].append(found)
                    print(f"{name}, {where}: {found.cpu:.1f} s CPU, {found.wall:.1f} s wall", file=sys.stderr)
    return costs


def ratio(of: list[float], over: list[float]) -> str:
    """Median, and range where there is one, of the ratio within a turn."""
    ratios = [a / b for a, b in zip(of, over, strict=True)]
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"


def table(costs: dict[str, dict[str, list[Cost]]], n: int) -> Table:
    """One row a setting."""
    headings = ("threads wait", "CPU s alone", "wall s alone", "CPU s beside", "wall s beside")
    drawn = Table(*headings, f"CPU beside {n} / alone", "wall alone / first", "wall beside / first")
    (_, first), *_ = costs.items()
    for name, of in costs.items():
        columns = {(k, f): [getattr(c, f) for c in of[k]] for k in of for f in Cost._fields}
        firsts = {k: [c.wall for c in first[k]] for k in first}
        drawn.add_row(
            name,
            *(f"{statistics.median(values):.1f}" for values in columns.values()),
            ratio(columns["beside", "cpu"], columns["alone", "cpu"]),
            ratio(columns["alone", "wall"], firsts["alone"]),
            ratio(columns["beside", "wall"], firsts["beside"]),
        )
    return drawn


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--settings", nargs="+", choices=[*SETTINGS], default=[*SETTINGS])
    parser.add_argument("--json", type=Path)
    parser.add_argument("command", nargs="*", metavar="-- COMMAND")
    given = parser.parse_args()
    arguments = given.command or CLASSIFY
    costs = measure(arguments, given.settings, given.neighbours, given.turns)
    print("anchorlens", *arguments)
    Console(width=140).print(table(costs, given.neighbours))
    if given.json:
        content = {name: {k: [c._asdict() for c in v] for k, v in of.items()} for name, of in costs.items()}
        given.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
