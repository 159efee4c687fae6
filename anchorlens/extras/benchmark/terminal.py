"""A benchmark in the terminal."""

from __future__ import annotations

from anchorlens.extras.benchmark.result import Benchmark
from anchorlens.extras.benchmark.tables import benchmark_table, notes, overview
from anchorlens.show.terminal.console import FittedTable, Terminal


def print_benchmark(result: Benchmark, reference: Benchmark | None = None) -> None:
    """Print the AUC of each reading on each question, together with the readings of a reference.

    Args:
        result: the benchmark to print. The rows of this benchmark are bold if a reference is given.
        reference: a benchmark to compare with. Default: none.
    """
    console = Terminal()
    console.print(overview(result), style="bold")
    console.print(FittedTable(benchmark_table(result, reference)))
    for line in notes(result, reference):
        console.print(line)
