"""What every probe gives in every phase: its readings on the phase presets, over seeds.

    python examples/probe_table.py --seed 0 1 2 --out runs/presets --pictures docs/images/probes

Runs that are in the folder already are read, the others trained (more than half an hour of one core for all).
Name probes to ask only those: `survival` alone takes eight minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens import Checkpoint, load_checkpoint, plots, preset, train_many
from anchorlens.probes import PROBES, apply, compare, probe_named
from anchorlens.probes.shared.contract import ProbeResult
from anchorlens.recipes.run_config import RunConfig

COLUMNS = {
    "phase1": "Phase 1",
    "phase2": "Phase 2 (not comm.)",
    "phase2-commutative": "Phase 2 (comm.)",
    "phase3": "Phase 3",
    "phase3-gamma0.8": "Phase 3, gamma 0.8",
}
"""Name of the runs -> what the column is called: the presets, and `phase3` with a smaller initialisation."""


def config(name: str, seed: int) -> RunConfig:
    """The run of a column."""
    return preset("phase3", gamma=0.8, seed=seed) if name == "phase3-gamma0.8" else preset(name, seed=seed)


def runs(seeds: Sequence[int], out: Path) -> dict[str, list[Checkpoint]]:
    """The final checkpoints of every preset, trained where they are missing."""
    cells = [(name, seed) for name in COLUMNS for seed in seeds]
    folders = {cell: out / f"{cell[0]}-seed{cell[1]}" for cell in cells}
    missing = [cell for cell in cells if not (folders[cell] / "ckpt.pt").exists()]
    if missing:
        train_many([config(*cell) for cell in missing], outs=[folders[cell] for cell in missing], resume=True)
    return {name: [load_checkpoint(folders[name, seed] / "ckpt.pt") for seed in seeds] for name in COLUMNS}


def readings(
    checkpoints: Mapping[str, Sequence[Checkpoint]], probes: Sequence[Callable[..., ProbeResult]] = PROBES
) -> dict[str, dict[str, list[float | None]]]:
    """`probe.reading` -> preset -> its value for each seed."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for probe in probes:
        for name, each in checkpoints.items():
            for checkpoint in each:
                for reading, value in apply(probe, checkpoint).numbers().items():
                    found.setdefault(f"{probe.__name__}.{reading}", {}).setdefault(name, []).append(value)
    return found


def summary(values: Sequence[float | None]) -> str:
    """Mean and standard deviation over seeds; of how many, where it is undefined for some."""
    there = [value for value in values if value is not None]
    if not there:
        return "undefined"
    spread = f" ± {statistics.stdev(there):.2f}" if len(there) > 1 else ""
    return f"{statistics.fmean(there):.2f}{spread}" + (
        "" if len(there) == len(values) else f" ({len(there)} of {len(values)})"
    )


def table(found: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Table:
    """One row for each reading."""
    shown = Table("probe and reading", *COLUMNS.values(), box=box.MARKDOWN)
    for name, by_preset in found.items():
        probe, reading = name.split(".")
        shown.add_row(f"`{probe}` {reading}", *(summary(by_preset[column]) for column in COLUMNS))
    return shown


def draw(
    checkpoints: Mapping[str, Sequence[Checkpoint]],
    folder: Path,
    suffix: str,
    probes: Sequence[Callable[..., ProbeResult]] = PROBES,
) -> None:
    """Every probe's picture of the first seed of each preset, side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    first = [each[0] for each in checkpoints.values()]
    for probe in probes:
        comparison = compare(first, probe, labels=list(COLUMNS.values()))
        plots.save(comparison.plot(), folder / f"{probe.__name__}{suffix}")


def main() -> None:
    """Read the command line, train what is missing, print, draw."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("probe", nargs="*", default=[probe.__name__ for probe in PROBES])
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/presets"))
    parser.add_argument("--pictures", type=Path, help="folder for the pictures")
    parser.add_argument("--suffix", default=".html", help=".html, .png, .svg or .pdf")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    probes = [probe_named(name) for name in given.probe]
    checkpoints = runs(given.seed, given.out)
    found = readings(checkpoints, probes)
    Console(width=150).print(table(found))
    if given.json:
        content: dict[str, Any] = {"seeds": given.seed, "readings": found}
        given.json.write_text(json.dumps(content))
    if given.pictures:
        draw(checkpoints, given.pictures, given.suffix, probes)


if __name__ == "__main__":
    main()
