"""A sweep in the terminal (`status`, `sweep --dry-run`): progress, phases, and a row for every cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anchorlens.extras.sweep.cells import TROUBLES, Cell, SweepResult, axes_of, cell_ids, metrics_of
from anchorlens.extras.sweep.diagram.axes import name_of_cell, value_label
from anchorlens.extras.sweep.diagram.layout import MOST_MAPS, phase_tables, symbols
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.recipes import RunConfig
from anchorlens.show import FittedTable, Table, Terminal, megabytes, number, print_json
from anchorlens.texts import safe_text
from anchorlens.training import duration

SCHEMA_VERSION = 1
"""The version of the JSON object, which grows by one if a key changes its meaning or is removed."""
MOST_ROWS = 12
"""The largest number of failed runs that are shown. `--cells` and `--json` show all runs."""


def overview(runs: Sequence[RunConfig]) -> str:
    """Return a text with the number of runs, and each axis with its values."""
    axes = axes_of([Cell(run) for run in runs])
    lines = [f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"]
    lines += [f"  {name}: {' '.join(map(value_label, values))}" for name, values in axes.items()]
    return "\n".join(lines)


def print_plan_of_sweep(runs: Sequence[RunConfig], out: Path | None) -> None:
    """Print the runs, the number of runs in the folder, and the time that the missing runs would take."""
    from anchorlens.training import grouped, training_plan  # imports torch, which `status` does not need

    console = Terminal()
    console.print(overview(runs))
    missing = list(runs)
    cell_ids(runs)
    if out is not None and SweepFolder(out).path.exists():
        folder = SweepFolder(out)
        missing = [cell.run for cell in folder.read(folder.runs_with_ids(runs)) if cell.status == "missing"]
        console.print(f"{len(runs) - len(missing):,} runs are in {safe_text(out, None)}")
    groups = grouped(missing, at_once=lambda run, n: n)
    plans = [training_plan([missing[place] for place in group], seconds=1.0) for group in groups]
    seconds = [job.seconds for job in plans if job.seconds is not None]
    if len(seconds) < len(plans):
        console.print("The memory is too small for all runs. Use a smaller batch.")
    elif plans:
        at_once = " or ".join(sorted({str(job.at_once) for job in plans}))
        console.print(
            f"the other {len(missing):,} runs: about {duration(sum(seconds))} on this machine's "
            f"{plans[0].device}, {at_once} at a time, at the speed measured now"
        )
    if plans:
        job = max(plans, key=lambda job: job.memory_bytes)
        free = megabytes(job.available_bytes)
        console.print(f"memory: at most {megabytes(job.memory_bytes)}, of {free} free")


def print_sweep(result: SweepResult, *, cells: bool = False) -> None:
    """Print the counts by status, the phases over two axes, failed runs, and runs in training."""
    console = Terminal()
    counts = ", ".join(f"{n} {status}" for status, n in result.counts.items())
    console.print(f"{safe_text(result.out, None)}: {counts}")
    if result.phases:
        console.print("phases: " + ", ".join(f"{n} {label}" for label, n in result.phases.items()))
    if cells:
        console.print(FittedTable(_cell_table(result)))
    elif len(result.axes) >= 2:
        maps = phase_tables(result)
        for table in maps[:MOST_MAPS]:
            console.print(FittedTable(table))
        if len(maps) > MOST_MAPS:
            console.print(f"and {len(maps) - MOST_MAPS} more maps; use anchorlens diagram to see all")
        console.print(symbols(result))
    failed = [cell for cell in result if cell.status in TROUBLES]
    for cell in failed[:MOST_ROWS]:
        console.print(f"{cell.status}: {_where(cell, result)}: {cell.error}")
    if len(failed) > MOST_ROWS:
        console.print(f"and {len(failed) - MOST_ROWS} more; --cells lists them")
    for cell, step in _begun(result):
        is_alive = SweepFolder(result.out).is_in_training(cell.id)
        at = f"{_where(cell, result)}: step {step:,} of {cell.run.train_config.total_steps:,}"
        console.print(f"in training: {at}" if is_alive else f"stopped: {at}; the same command continues it")


def print_sweep_json(result: SweepResult) -> None:
    """Print one line of JSON with the counts by status, the axes, and the flat record of every run."""
    axes = {name: list(values) for name, values in result.axes.items()}
    about = {"schema_version": SCHEMA_VERSION, "out": str(result.out), "counts": result.counts}
    print_json({**about, "phases": result.phases, "axes": axes, "cells": [cell.row() for cell in result]})


def _where(cell: Cell, result: SweepResult) -> str:
    return f"{cell.id} {name_of_cell(cell, result.axes)}".rstrip()


def _cell_table(result: SweepResult) -> Table:
    metrics = [metric for metric in metrics_of(result) if metric.in_tables]
    columns = ["run", *result.axes, *(metric.title for metric in metrics)]
    columns += ["by behaviour", "by the probes", "step", "seconds"]
    shown = [*((metric.name, ".3f") for metric in metrics), ("step", ",.0f"), ("seconds", ",.0f")]
    rows = []
    for cell in result:
        numbers = cell.numbers
        fields = (value_label(cell.fields.get(name)) for name in result.axes)
        *measures, step, seconds = (
            "-" if numbers.get(name) is None else number(numbers[name], spec) for name, spec in shown
        )
        labels = (numbers.get("label") or cell.status, numbers.get("by_probes_label") or "-")
        phases = (label.removeprefix("Phase ") for label in labels)
        rows.append((cell.id, *fields, *measures, *phases, step, seconds))
    return Table(columns, rows)


def _begun(result: SweepResult) -> list[tuple[Cell, int]]:
    """Return the cells with a log whose folder is not in `cells` yet, and their last logged step."""
    folder = SweepFolder(result.out)
    logs = [(cell, folder.unfinished(cell.id) / "log.jsonl") for cell in result if cell.status == "missing"]
    logs = [(cell, path) for cell, path in logs if folder.size(path)]
    if not logs:
        return []
    from anchorlens.extras.sweep.run import last_step  # imports torch

    return [(cell, last_step(path)) for cell, path in logs]
