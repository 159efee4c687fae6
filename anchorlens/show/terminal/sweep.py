"""A sweep in the terminal: how far it is, the phases over its axes, a row for every cell."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from anchorlens.runs.run_config import RunConfig
from anchorlens.safe import printable
from anchorlens.show.diagram.phase_maps import MOST_MAPS, SIGNS, PhaseMap, phase_maps, plain_value, where
from anchorlens.show.terminal.console import Terminal
from anchorlens.sweep.cells import TROUBLES, Cell, SweepResult, axes_of, cell_ids, metrics_of
from anchorlens.sweep.folder import SweepFolder

SCHEMA_VERSION = 1
"""Of the JSON object; it grows by one when a key changes its meaning or goes."""
MOST_ROWS = 12
"""Failed cells that are shown; --cells and --json show all."""


def outline(runs: Sequence[RunConfig]) -> str:
    """How many cells, and over what: each axis with its values."""
    axes = axes_of([Cell(run) for run in runs])
    lines = [f"{len(runs):,} {'cell' if len(runs) == 1 else 'cells'}"]
    lines += [f"  {name}: {' '.join(map(plain_value, values))}" for name, values in axes.items()]
    return "\n".join(lines)


def print_plan_of_sweep(runs: Sequence[RunConfig], out: Path | None) -> None:
    """Print the cells, which are there already, and what the others would take on this machine."""
    from anchorlens.show.terminal.training import duration  # with torch, which `status` need not wait for
    from anchorlens.training.jobs import grouped
    from anchorlens.training.plan import plan

    console = Terminal()
    console.print(outline(runs))
    missing = list(runs)
    cell_ids(runs)
    if out is not None and SweepFolder(out).path.exists():
        folder = SweepFolder(out)
        missing = [cell.run for cell in folder.read(folder.named(runs)) if cell.status == "missing"]
        console.print(f"{len(runs) - len(missing):,} of them are in {printable(out, None)}")
    plans = [
        plan([missing[place] for place in group], seconds=1.0)
        for group in grouped(missing, at_once=lambda run, n: n)
    ]
    known = [one.seconds for one in plans if one.seconds is not None]
    if len(known) < len(plans):
        console.print("the memory does not hold all of them; try a smaller batch")
    elif plans:
        at_once = " or ".join(sorted({str(one.at_once) for one in plans}))
        console.print(
            f"the {len(missing):,} others: about {duration(sum(known))} on this machine's {plans[0].device}, "
            f"{at_once} at a time, if nothing else runs"
        )


def print_sweep(result: SweepResult, *, cells: bool = False) -> None:
    """Print counts, the phases over two axes, what failed, and what is under way."""
    console = Terminal()
    counts = ", ".join(f"{n} {status}" for status, n in result.counts.items())
    console.print(f"{printable(result.out, None)}: {counts}")
    if result.phases:
        console.print("phases: " + ", ".join(f"{n} {label}" for label, n in result.phases.items()))
    if cells:
        console.print(_cell_table(result))
    elif len(result.axes) >= 2:
        maps = phase_maps(result)
        for shown in maps[:MOST_MAPS]:
            console.print(_phase_table(shown))
        if len(maps) > MOST_MAPS:
            console.print(f"and {len(maps) - MOST_MAPS} more such maps; anchorlens diagram draws all")
        console.print(f"A sign a seed: {SIGNS}")
    failed = [cell for cell in result if cell.status in TROUBLES]
    for cell in failed[:MOST_ROWS]:
        console.print(f"{cell.status}: {where(cell, result)}: {cell.error}")
    if len(failed) > MOST_ROWS:
        console.print(f"and {len(failed) - MOST_ROWS} more; --cells lists them")
    for cell, step in _under_way(result):
        console.print(f"under way: {where(cell, result)}: step {step:,} of {cell.run.train.total_steps:,}")


def print_sweep_json(result: SweepResult) -> None:
    """Print exactly one JSON object, on one line: counts, axes, and the flat record of every cell."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "out": str(result.out),
        "counts": result.counts,
        "phases": result.phases,
        "axes": {name: list(values) for name, values in result.axes.items()},
        "cells": [cell.row() for cell in result],
    }
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def _phase_table(shown: PhaseMap) -> Table:
    table = Table(shown.corner, *shown.columns, title=shown.title or None, box=box.SIMPLE_HEAD)
    for row, squares in shown.rows:
        table.add_row(row, *("".join(sign for sign, _ in cells) for cells in squares))
    return table


def _cell_table(result: SweepResult) -> Table:
    metrics = [metric for metric in metrics_of(result) if metric.in_tables]
    columns = ("by behaviour", "by mechanism", "step", "seconds")
    table = Table("cell", *result.axes, *(metric.title for metric in metrics), *columns)
    for cell in result:
        numbers = cell.numbers
        accuracies = [numbers.get(metric.name) for metric in metrics]
        table.add_row(
            cell.id,
            *(plain_value(cell.fields[name]) for name in result.axes),
            *("-" if value is None else f"{value:.3f}" for value in accuracies),
            _label(numbers.get("label")) if cell.numbers else cell.status,
            _label(numbers.get("mechanism_label")),
            *("-" if numbers.get(name) is None else f"{numbers[name]:.0f}" for name in ("step", "seconds")),
        )
    return table


def _label(label: str | None) -> str:
    return "-" if label is None else label.removeprefix("Phase ")


def _under_way(result: SweepResult) -> list[tuple[Cell, int]]:
    """Cells with a folder that is not in its place yet, and the last step that was logged."""
    folder = SweepFolder(result.out)
    missing = [cell for cell in result if cell.status == "missing"]
    logs = [(cell, folder.unfinished(cell.id) / "log.jsonl") for cell in missing]
    logs = [(cell, path) for cell, path in logs if path.exists()]
    if not logs:
        return []
    from anchorlens.training.folder import readable_log  # with torch

    steps = [(cell, readable_log(path)) for cell, path in logs]
    return [(cell, log[-1]["step"] if log else 0) for cell, log in steps]
