"""What `status` and `diagram` cost with the size of a sweep.

    python examples/benchmarks/sweep_size.py --cells 1000 3000 10000
    python examples/benchmarks/sweep_size.py --source sweeps/a --folder /tmp/sizes

The trained cells of a sweep, or the four shipped models with logs of 150 lines, are made into a sweep of any
size over gamma and weight decay, with `--seeds` seeds each: every number that was measured or logged is
changed by up to a tenth, so that no two cells compress as one. The cells have no `ckpt.pt`, which neither
command reads. With `--folder` the sweeps are kept, and used again. Both commands are then run as in a
terminal, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

N_LINES = 150
"""Of the log of a shipped model."""
KEPT = {
    "step", "schema_version", "format_version", "n_sequences", "pair", "phase", "options", "checkpoint",
    "ranges",
}  # fmt: skip
"""What is the same in every cell: counts, settings, the calibration, what the verdict's words depend on."""


def changed(value: Any, chance: random.Random) -> Any:
    """The same with other numbers: each nearer to 0 by up to a tenth, so that a share stays one."""
    if isinstance(value, float):
        return value * chance.uniform(0.9, 1)
    if isinstance(value, dict):
        return {
            name: item if name in KEPT or name.endswith("_error") else changed(item, chance)
            for name, item in value.items()
        }
    return [changed(item, chance) for item in value] if isinstance(value, list) else value


def trained_cells(source: Path | None) -> list[tuple[Any, dict[str, Any], list[dict[str, Any]]]]:
    """Configuration, content of `cell.json` and log of every trained cell of a sweep."""
    from anchorlens.extras.sweep import open_sweep

    if source is None:
        return shipped_cells()
    cells = [cell for cell in open_sweep(source) if cell.done]
    found = [(cell.run, cell.content.to_dict(), cell.log()) for cell in cells if cell.content]
    if not found:
        raise SystemExit(f"--source must hold a trained cell, got none in {source}")
    return found


def shipped_cells() -> list[tuple[Any, dict[str, Any], list[dict[str, Any]]]]:
    """The same of the four shipped models; their logs are made up."""
    from anchorlens import classify
    from anchorlens.probes import embedding_pca, q_condensation, stable_rank
    from anchorlens.probes.registry import apply
    from anchorlens.training.checkpoints import runs, shipped

    found = []
    for path, run in zip(shipped(), runs().values(), strict=True):
        verdict = classify(path)
        model = verdict.subject.model
        assert model is not None
        probes = {
            f"{probe.__name__}.{name}": value
            for probe in (stable_rank, q_condensation, embedding_pca)
            for name, value in apply(probe, model, run.task).numbers().items()
        }
        log: list[dict[str, Any]] = []
        for step in range(10, 10 * N_LINES + 1, 10):
            log.append({"step": step, "loss": 5 * 0.99 ** (step / 10), "lr": 1e-4, "seconds": step / 50})
            if step % 100 == 0:
                log[-1] |= {f"{name}_accuracy": 1 - 0.9 ** (step / 100) for name in ("train", "id", "ood")}
        content = {"status": "finished", "error": None, "step": 10 * N_LINES, "seconds": 30.0, "loss": 0.01}
        found.append((run, {**content, "probes": probes, "verdict": verdict.to_dict()}, log))
    return found


def make(source: Path | None, out: Path, n_cells: int, n_seeds: int) -> None:
    """Write a sweep of so many cells."""
    from anchorlens.extras.sweep.sweep_folder import SweepFolder

    trained = trained_cells(source)
    side = max(1, round((n_cells / n_seeds) ** 0.5))
    runs = []
    for k in range(n_cells):
        place, seed = divmod(k, n_seeds)
        row, column = divmod(place, side)
        base = trained[0][0]
        model = replace(base.model_config, gamma=round(0.3 + 0.01 * column, 2))
        recipe = replace(base.train_config, seed=seed, weight_decay=round(0.005 * row, 3))
        runs.append(base._replace(model_config=model, train_config=recipe))
    folder = SweepFolder(out)
    chance = random.Random(0)
    with folder.lock(runs) as named:
        for k, (identity, run) in enumerate(named):
            _, content, log = trained[k % len(trained)]
            unfinished = folder.unfinished(identity)
            unfinished.mkdir(parents=True)
            (unfinished / "config.json").write_text(json.dumps(run.to_dict()))
            lines = [json.dumps(changed(line, chance)) for line in log]
            (unfinished / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
            folder.finish(identity, {**changed(content, chance), "id": identity})


def cost(*arguments: object) -> dict[str, float]:
    """Seconds, seconds of CPU and peak MB of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "anchorlens", *map(str, arguments)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1000}


def measure(out: Path) -> dict[str, dict[str, float]]:
    """Both commands on a sweep."""
    page = out.with_suffix(".html")
    found = {"status": cost("status", out), "diagram": cost("diagram", out, "--out", page)}
    found["diagram"]["page"] = page.stat().st_size / 1e6
    return found


def table(found: dict[int, dict[str, dict[str, float]]]) -> Table:
    """A row for each size and command."""
    columns = ("cells", "command", "seconds", "CPU seconds", "CPU ms a cell", "MB of memory", "MB of page")
    shown = Table(*columns, box=box.MARKDOWN)
    for n_cells, commands in found.items():
        for command, one in commands.items():
            numbers = [f"{one['seconds']:.1f}", f"{one['cpu']:.1f}", f"{1000 * one['cpu'] / n_cells:.2f}"]
            page = f"{one['page']:.1f}" if "page" in one else ""
            shown.add_row(f"{n_cells:,}", command, *numbers, f"{one['memory']:,.0f}", page)
    return shown


def growth(found: dict[int, dict[str, dict[str, float]]]) -> Sequence[str]:
    """How a cost grows from the smallest sweep to the largest, beside the number of cells."""
    least, most = min(found), max(found)
    lines = []
    for command in ("status", "diagram"):
        ratio = found[most][command]["cpu"] / found[least][command]["cpu"]
        lines.append(f"{command}: {ratio:.2f} times the CPU time for {most / least:.2f} times the cells")
    return lines


def main() -> None:
    """Read the command line, make the sweeps, measure, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--cells", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--source", type=Path, help="a sweep with trained cells")
    parser.add_argument("--folder", type=Path, help="where the sweeps are made; left out: nowhere for long")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        found = {}
        for n_cells in given.cells:
            out = folder / f"{n_cells}"
            if not out.exists():
                make(given.source, out, n_cells, given.seeds)
            found[n_cells] = measure(out)
    console = Console(width=140)
    console.print(table(found))
    console.print("\n".join(growth(found)))
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
