"""Train a preset over gamma x weight decay x seed, on all cores, and print what each run became.

python examples/grid.py --preset quick --gamma 0.3 0.5 0.7 --weight-decay 0 0.1 1 --seed 0 [--out runs/grid]

With --out the runs are kept, and the same command continues or re-measures them. The tables are Markdown;
--json FILE writes the numbers. The last line says what the whole grid took.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens import TrainResult, preset, train_many

AXES = ("gamma", "weight_decay", "seed")
NUMBERS = ("train", "id", "ood", "commutativity")


def cells(axes: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination of the axes that were given."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def run_table(name: str, grid: Sequence[Mapping[str, float]], results: Sequence[TrainResult]) -> Table:
    """A row for every run, and the mean of the numbers."""
    axes = list(grid[0])
    columns = ["preset", *axes, "train", "ID", "OOD", "commutativity", "phase", "steps", "seconds"]
    shown = Table(*columns, box=box.MARKDOWN)
    values: list[list[float]] = [[] for _ in NUMBERS]
    for cell, result in zip(grid, results, strict=True):
        accuracies = [getattr(result.behaviour, number) for number in NUMBERS]
        for column, accuracy in zip(values, accuracies, strict=True):
            column += [] if accuracy is None else [accuracy.value]
        numbers = ["-" if accuracy is None else f"{accuracy.value:.3f}" for accuracy in accuracies]
        seconds = f"{result.log[-1]['seconds']:.0f}" if result.log else "-"
        shown.add_row(
            name,
            *(f"{cell[a]:g}" for a in axes),
            *numbers,
            _label(result),
            str(result.checkpoint.step),
            seconds,
        )
    means = [f"{sum(column) / len(column):.3f}" if column else "-" for column in values]
    shown.add_row(name, *["mean"][: len(axes)], *[""] * (len(axes) - 1), *means, "", "", "")
    return shown


def phase_map(grid: Sequence[Mapping[str, float]], results: Sequence[TrainResult]) -> Table:
    """Phases over gamma (across) and weight decay (down), those of all seeds in each cell."""
    gammas, decays = (sorted({cell[axis] for cell in grid}) for axis in ("gamma", "weight_decay"))
    shown = Table("decay / gamma", *(f"{gamma:g}" for gamma in gammas), box=box.MARKDOWN)
    for decay in decays:
        row = []
        for gamma in gammas:
            found = [
                _short(result)
                for cell, result in zip(grid, results, strict=True)
                if (cell["gamma"], cell["weight_decay"]) == (gamma, decay)
            ]
            row.append(" ".join(found))
        shown.add_row(f"{decay:g}", *row)
    return shown


def _label(result: TrainResult) -> str:
    if result.status == "diverged":
        return "diverged"
    return result.behaviour.phase.label.removeprefix("Phase ")


def _short(result: TrainResult) -> str:
    """`3`, `2c` (with commutativity), or `?` where it is no phase."""
    phase = result.behaviour.phase
    if result.status == "diverged" or phase.phase is None:
        return "?"
    return f"{phase.phase}{'c' if phase.label.endswith('with commutativity') else ''}"


def main() -> None:
    """Read the command line, train every cell, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--gamma", type=float, nargs="+")
    parser.add_argument("--weight-decay", type=float, nargs="+")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--matmul", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--early-stop", type=int, help="evaluations without movement, once the data are fit")
    parser.add_argument("--workers", type=int, help="processes; one per core if left out")
    parser.add_argument("--out", type=Path, help="folder to keep the runs in")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    axes = {axis: sorted(set(getattr(given, axis))) for axis in AXES if getattr(given, axis) is not None}
    fields: dict[str, Any] = {
        "steps": given.steps,
        "matmul": given.matmul,
        "early_stop_evaluations": given.early_stop,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    grid = cells(axes)
    names = ["-".join([given.preset, *(f"{n}{v}" for n, v in {**fields, **cell}.items())]) for cell in grid]
    started = time.perf_counter()
    try:
        results = train_many(
            [preset(given.preset, **fields, **cell) for cell in grid],
            outs=given.out and [given.out / name for name in names],
            resume=given.out is not None,
            workers=given.workers,
        )
    except ValueError as error:
        parser.error(str(error))
    seconds = time.perf_counter() - started
    console = Console(width=140)
    console.print(run_table(given.preset, grid, results))
    if "gamma" in axes and "weight_decay" in axes:
        console.print(phase_map(grid, results))
    console.print(f"{len(grid)} models in {seconds:.0f} s")
    if given.json:
        rows = [
            {**cell, "status": r.status, "step": r.checkpoint.step, **r.behaviour.headline()}
            for cell, r in zip(grid, results, strict=True)
        ]
        given.json.write_text(
            json.dumps({"preset": given.preset, **fields, "seconds": seconds, "runs": rows})
        )


if __name__ == "__main__":
    main()
