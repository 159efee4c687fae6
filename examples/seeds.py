"""Train one preset over several seeds and print what each of them became; one seed is not a result.

python examples/seeds.py --preset phase3 --seeds 0 1 2 [--gamma 0.7] [--steps 1000] [--workers 2] [--out runs]

With --out the runs are kept, and the same command continues or re-measures them. The table is Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens.behaviour import Behaviour

NUMBERS = ("train", "id", "ood", "commutativity")


def run(preset_name: str, fields: dict[str, Any], out: Path | None) -> tuple[Behaviour, int, float]:
    """Train and measure one run; behaviour, steps taken and seconds of training."""
    from anchorlens import preset, train

    result = train(*preset(preset_name, **fields), out=out, resume=out is not None, progress=False)
    return result.behaviour, result.checkpoint.step, result.log[-1]["seconds"]


def table(name: str, seeds: Sequence[int], results: Sequence[tuple[Behaviour, int, float]]) -> Table:
    """A row for every seed, and the mean of the numbers."""
    columns = (name, "seed", "train", "ID", "OOD", "commutativity", "phase", "steps", "seconds")
    shown = Table(*columns, box=box.MARKDOWN)
    values: list[list[float]] = [[] for _ in NUMBERS]
    for seed, (behaviour, steps, seconds) in zip(seeds, results, strict=True):
        accuracies = [getattr(behaviour, number) for number in NUMBERS]
        for column, accuracy in zip(values, accuracies, strict=True):
            column += [] if accuracy is None else [accuracy.value]
        cells = ["-" if accuracy is None else f"{accuracy.value:.3f}" for accuracy in accuracies]
        shown.add_row("", str(seed), *cells, behaviour.phase.label, str(steps), f"{seconds:.0f}")
    means = [f"{sum(column) / len(column):.3f}" if column else "-" for column in values]
    shown.add_row("", "mean", *means, "", "", "")
    return shown


def main() -> None:
    """Read the command line, train every seed, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--workers", type=int, default=1, help="processes side by side, a thread each")
    parser.add_argument("--out", type=Path, help="folder to keep the runs in")
    given = parser.parse_args()
    fields = {name: getattr(given, name) for name in ("gamma", "steps") if getattr(given, name) is not None}
    name = " ".join([given.preset, *(f"{field} {value}" for field, value in fields.items())])
    if given.workers > 1:
        fields["threads"] = 1
    outs = [given.out and given.out / f"{name.replace(' ', '-')}-{seed}" for seed in given.seeds]
    # new interpreters rather than forks: a fork of a process with torch's threads can hang
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(run, given.preset, {**fields, "seed": seed}, out)
            for seed, out in zip(given.seeds, outs, strict=True)
        ]
        results = [future.result() for future in futures]
    Console(width=130).print(table(name, given.seeds, results))


if __name__ == "__main__":
    main()
