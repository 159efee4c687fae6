"""What one process does for a sweep: train some cells as a stack, measure them, put them in their places."""

from __future__ import annotations

import contextlib
import math
import shutil
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import filelock

from anchorlens.files.container import CheckpointError
from anchorlens.probes import apply, embedding_pca, q_condensation, stable_rank
from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep.cells import cell_id
from anchorlens.sweep.folder import SweepFolder
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.numerics import choose_device, numeric_settings
from anchorlens.training.plan import members_at_once
from anchorlens.training.result import TrainResult
from anchorlens.training.run import train_many
from anchorlens.verdict.classify import classify

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


class Failure(NamedTuple):
    """A cell that cannot be trained, and why."""

    id: str
    """Of the cell."""
    error: str
    """In a line."""
    details: str
    """The traceback."""


def work(runs: Sequence[RunConfig], out: Path) -> list[Failure]:
    """Train cells of equal shape together, those that have none yet, and measure each.

    A cell that a killed process left continues from its state. Where an error stops several cells, each is
    tried alone, so that one that is faulty stops no other.

    Args:
        runs: cells, equal in shape.
        out: the sweep's folder.

    Returns:
        The cells that ended in an error.

    Raises:
        OSError: the disk refuses; that is no cell's fault.
    """
    folder = SweepFolder(out)
    with contextlib.ExitStack() as held:
        for identity in sorted(map(cell_id, runs)):
            held.enter_context(_alone(folder, identity))
        missing = [run for run in runs if not folder.cell(cell_id(run)).exists()]
        if not missing:
            return []
        try:
            _train_and_measure(missing, folder)
        except OSError:
            raise
        except Exception as error:
            if len(missing) == 1:
                (identity,) = map(cell_id, missing)
                line = " ".join(str(error).split()) or type(error).__name__
                return [Failure(identity, line, "".join(traceback.format_exception(error)))]
    return [failure for run in missing for failure in work([run], out)]


def cells_at_once(run: RunConfig, n_runs: int) -> int:
    """How many cells like this one a process should get at a time: on CUDA a stack, on the CPU one."""
    if choose_device(run.train.device).type != "cuda":
        return 1
    return members_at_once(run, n_runs)


@contextlib.contextmanager
def _alone(folder: SweepFolder, identity: str) -> Any:
    """Wait until no other process has the cell: one that was given up may still be at work on it."""
    path = folder.unfinished(identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")):
        yield


def _train_and_measure(runs: Sequence[RunConfig], folder: SweepFolder) -> None:
    device = choose_device(runs[0].train.device)
    with numeric_settings(device, runs[0].train.threads or 1):
        for result, run in zip(_train(runs, folder), runs, strict=True):
            folder.finish(cell_id(run), _content(run, result))


def _train(runs: Sequence[RunConfig], folder: SweepFolder) -> list[TrainResult]:
    """Train or continue; what was left in a state that cannot be read is begun anew."""
    # on one thread, so that the same cell has the same bits whichever engine trains it
    alike = [run._replace(train=replace(run.train, threads=run.train.threads or 1)) for run in runs]
    outs = [folder.unfinished(cell_id(run)) for run in runs]
    try:
        return train_many(alike, outs=outs, resume=True, workers=1, progress=False)
    except CheckpointError:
        for out in outs:
            shutil.rmtree(out, ignore_errors=True)
        return train_many(alike, outs=outs, resume=True, workers=1, progress=False)


def _content(run: RunConfig, result: TrainResult) -> dict[str, Any]:
    """What `cell.json` holds."""
    last = result.log[-1] if result.log else {}
    verdict = classify(result, device=run.train.device)
    model, task = verdict.subject.model_and_task()
    return {
        "id": cell_id(run),
        "status": result.status,
        "error": result.message,
        "step": result.checkpoint.step,
        "seconds": last.get("seconds"),
        "loss": last.get("loss"),
        "probes": _readings_of_weights(model, task),
        "verdict": verdict.to_dict(),
    }


def _readings_of_weights(model: HookedTransformer, task: AnchorTask) -> dict[str, float | None]:
    """`probe.reading` -> value, of the probes that need no forward pass."""
    readings: dict[str, float | None] = {}
    for probe in (stable_rank, q_condensation, embedding_pca):
        with contextlib.suppress(ValueError):  # a task of one's own may give it nothing to measure
            for name, value in apply(probe, model, task).numbers().items():
                known = value is not None and math.isfinite(value)
                readings[f"{probe.__name__}.{name}"] = value if known else None
    return readings
