"""The work of one process of a sweep: train some cells together, measure them and store them."""

from __future__ import annotations

import contextlib
import math
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from anchorlens import classify
from anchorlens.engine import numeric_settings
from anchorlens.extras.sweep.sweep_folder import NamedRun, SweepFolder
from anchorlens.models import choose_device, is_out_of_memory
from anchorlens.probes import apply, embedding_pca, q_condensation, stable_rank
from anchorlens.recipes import RunConfig
from anchorlens.safe import CheckpointError
from anchorlens.tasks import Task
from anchorlens.training import TrainResult, train_many

if TYPE_CHECKING:
    from anchorlens.models import HookedTransformer


def work(cells: Sequence[NamedRun], out: Path) -> None:
    """Train unfinished runs together, measure each run, and record the failed runs.

    A run of a killed process continues from its saved state. If an error stops several runs, the function
    trains each run alone. A faulty run therefore does not stop other runs.

    Args:
        cells: the runs with their ids. All models of these runs have the same shape.
        out: the sweep's folder.

    Raises:
        OSError: If reading or writing fails. An OSError is not recorded as the error of a run.
        MemoryError: If a run does not fit in memory even if the run is trained alone. A MemoryError is not
            recorded as the error of the run.
    """
    folder = SweepFolder(out)
    folder.unfinished("").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        for name in sorted(name for name, _ in cells):  # a dropped job of another process may still run
            held.enter_context(filelock.FileLock(folder.unfinished(f"{name}.lock")))
        missing = [(name, run) for name, run in cells if not folder.cell(name).exists()]
        try:
            if missing:
                _train_and_measure(missing, folder)
            return
        except OSError:
            raise
        except Exception as error:
            if len(missing) == 1:
                name, line = missing[0][0], " ".join(str(error).split()) or type(error).__name__
                if is_out_of_memory(error):
                    raise MemoryError(
                        f"the run {name} must fit into memory, got an error: {line}. Use a smaller batch"
                    ) from error
                folder.fail(name, line, "".join(traceback.format_exception(error)))
                return
    for cell in missing:
        work([cell], out)


def _train_and_measure(cells: Sequence[NamedRun], folder: SweepFolder) -> None:
    train, results = cells[0][1].train_config, _train(cells, folder)
    with numeric_settings(choose_device(train.device), train.threads or 1):  # measured as `classify` does
        for (name, run), result in zip(cells, results, strict=True):
            folder.finish(name, {"id": name, **_content(run, result)})


def _train(cells: Sequence[NamedRun], folder: SweepFolder) -> list[TrainResult]:
    """Train or continue; a cell with unreadable files starts from scratch, and its old files are kept."""
    # On one thread, every engine gives bit-equal results on a CPU.
    runs = [
        run._replace(train_config=replace(run.train_config, threads=run.train_config.threads or 1))
        for _, run in cells
    ]
    outs = [folder.unfinished(name) for name, _ in cells]
    while True:
        try:
            return train_many(runs, outs=outs, resume=True, workers=1, progress=False)
        except CheckpointError as error:
            unreadable = [out for out in outs if out in Path(error.path).parents]
            if not unreadable:
                raise
            kept = folder.set_aside(unreadable[0].name)
            warnings.warn(
                f"{error}; training of this cell restarts, and its previous files are in {kept}", stacklevel=2
            )


def _content(run: RunConfig, result: TrainResult) -> dict[str, Any]:
    """Return the content of `cell.json` besides the id."""
    last = result.log[-1] if result.log else {}
    verdict = classify(result, device=run.train_config.device, even_underfit=False, quick=True)
    model, task = verdict.subject.model_and_task()
    return {
        "status": result.status,
        "error": result.message,
        "step": result.checkpoint.step,
        "seconds": last.get("seconds"),
        "loss": last.get("loss"),
        "passed_at": result.passed_at,
        "probes": _readings_of_weights(model, task),
        "verdict": verdict.to_dict(),
    }


def _readings_of_weights(model: HookedTransformer, task: Task) -> dict[str, float | None]:
    """Return the value of each `probe.reading` that needs no forward pass."""
    readings: dict[str, float | None] = {}
    for probe in (stable_rank, q_condensation, embedding_pca):
        with contextlib.suppress(ValueError):  # the probe may not apply to a user's own task
            for name, value in apply(probe, model, task).numbers().items():
                finite = value is not None and math.isfinite(value)
                readings[f"{probe.__name__}.{name}"] = value if finite else None
    return readings
