"""A sweep in the terminal: how far it is, the phases over its axes, a row for every cell."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens.presets import RunConfig
from anchorlens.printing import duration
from anchorlens.sweep.cells import Cell, SweepResult, axes_of, cell_id
from anchorlens.sweep.folder import SweepFolder
from anchorlens.training.folder import read_log
from anchorlens.training.loop import loop_key
from anchorlens.training.plan import plan

SCHEMA_VERSION = 1
"""Of the JSON object; it grows by one when a key changes its meaning or goes."""
MOST_ROWS = 12
"""Failed cells that are told of; --cells and --json tell of all."""
MOST_TABLES = 4
"""Maps of phases that are printed."""
ACCURACIES = ("train", "id", "ood", "commutativity")


def outline(runs: Sequence[RunConfig]) -> str:
    """How many cells, and over what: each axis with its values."""
    axes = axes_of([Cell(run) for run in runs])
    lines = [f"{len(runs):,} {'cell' if len(runs) == 1 else 'cells'}"]
    lines += [f"  {name}: {' '.join(_plain(value) for value in values)}" for name, values in axes.items()]
    return "\n".join(lines)


def print_plan_of_sweep(runs: Sequence[RunConfig], out: Path | None) -> None:
    """Print the cells, which are there already, and what the others would take on this machine."""
    console = _console()
    console.print(outline(runs))
    missing = list(runs)
    if out is not None and SweepFolder(out).path.exists():
        missing = [cell.run for cell in SweepFolder(out).read(runs) if cell.status == "missing"]
        console.print(f"{len(runs) - len(missing):,} of them are in {out}")
    groups: dict[object, list[RunConfig]] = {}
    for run in missing:
        groups.setdefault(loop_key(run), []).append(run)
    plans = [plan(group, seconds=1.0) for group in groups.values()]
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
    console = _console()
    console.print(f"{result.out}: " + ", ".join(f"{n} {status}" for status, n in result.counts.items()))
    if result.phases:
        console.print("phases: " + ", ".join(f"{n} {label}" for label, n in result.phases.items()))
    if cells:
        console.print(_cell_table(result))
    elif len(result.axes) >= 2:
        tables = _phase_tables(result)
        for table in tables[:MOST_TABLES]:
            console.print(table)
        if len(tables) > MOST_TABLES:
            console.print(f"and {len(tables) - MOST_TABLES} more such maps; anchorlens diagram draws all")
        console.print("A sign a seed: 1, 2, c (2 with commutativity), 3, ? undecided, x failed, . missing")
    failed = [cell for cell in result if cell.status in ("failed", "diverged")]
    for cell in failed[:MOST_ROWS]:
        console.print(f"{cell.status}: {_where(cell, result)}: {cell.error}")
    if len(failed) > MOST_ROWS:
        console.print(f"and {len(failed) - MOST_ROWS} more; --cells lists them")
    for cell, step in _under_way(result):
        console.print(f"under way: {_where(cell, result)}: step {step:,} of {cell.run.train.total_steps:,}")


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


def _phase_tables(result: SweepResult) -> list[Table]:
    """Phases over the first two axes beside the seed, those of all seeds in each place, in order of seed.

    Where more fields vary there is a table for each of their combinations.
    """
    names = [name for name in result.axes if name != "seed"]
    order = ["gamma", "weight_decay", *names]
    across, *others = sorted(names, key=order.index) or ["seed"]
    down, others = (others[0], others[1:]) if others else (None, [])
    slices: dict[tuple[str, ...], list[Cell]] = {}
    for cell in result:
        slices.setdefault(tuple(_plain(cell.fields[name]) for name in others), []).append(cell)
    tables = []
    for values, cells in slices.items():
        title = ", ".join(f"{name} {value}" for name, value in zip(others, values, strict=True))
        columns = _present(cells, across, result)
        corner = f"{down} / {across}" if down else across
        table = Table(corner, *map(_plain, columns), title=title or None, box=box.SIMPLE_HEAD)
        for row in _present(cells, down, result) if down else (None,):
            here = [c for c in cells if down is None or c.fields[down] == row]
            shown = ["".join(_short(c) for c in here if c.fields[across] == value) for value in columns]
            table.add_row("" if down is None else _plain(row), *shown)
        tables.append(table)
    return tables


def _present(cells: Sequence[Cell], name: str, result: SweepResult) -> list[Any]:
    """The values of an axis that some of these cells have, ascending."""
    return [value for value in result.axes[name] if any(cell.fields[name] == value for cell in cells)]


def _short(cell: Cell) -> str:
    if cell.status == "missing":
        return "."
    if cell.status in ("failed", "diverged"):
        return "x"
    if cell.phase is None:
        return "?"
    return "c" if cell.numbers["commutative"] else str(cell.phase)


def _cell_table(result: SweepResult) -> Table:
    columns = ("train", "ID", "OOD", "commutativity", "by behaviour", "by mechanism", "step", "seconds")
    table = Table("cell", *result.axes, *columns)
    for cell in result:
        numbers = cell.numbers
        accuracies = [numbers.get(name) for name in ACCURACIES]
        table.add_row(
            cell.id,
            *(_plain(cell.fields[name]) for name in result.axes),
            *("-" if value is None else f"{value:.3f}" for value in accuracies),
            _label(numbers.get("label")) if cell.status not in ("failed", "missing") else cell.status,
            _label(numbers.get("mechanism_label")),
            *("-" if numbers.get(name) is None else f"{numbers[name]:.0f}" for name in ("step", "seconds")),
        )
    return table


def _label(label: str | None) -> str:
    return "-" if label is None else label.removeprefix("Phase ")


def _where(cell: Cell, result: SweepResult) -> str:
    """A cell by its place on the axes."""
    axes: Mapping[str, Any] = result.axes
    return " ".join([cell.id, *(f"{name} {_plain(cell.fields[name])}" for name in axes)])


def _under_way(result: SweepResult) -> list[tuple[Cell, int]]:
    """Cells with a folder that is not in its place yet, and the last step that was logged."""
    folder = SweepFolder(result.out)
    missing = [cell for cell in result if cell.status == "missing"]
    logs = [(cell, folder.unfinished(cell_id(cell.run)) / "log.jsonl") for cell in missing]
    steps = [(cell, read_log(path)) for cell, path in logs if path.exists()]
    return [(cell, log[-1]["step"] if log else 0) for cell, log in steps]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)
    )


def _console() -> Console:
    return Console(highlight=False, markup=False)
