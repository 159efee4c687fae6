"""`control`: try interventions on a run that ended in Phase 1 or 2, within a time budget."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anchorlens.configuration import check_number, checked_arguments
from anchorlens.engine import numeric_settings
from anchorlens.extras.control.interventions import INTERVENTIONS, Intervention
from anchorlens.extras.control.result import Attempt, Control, PhaseAnswers
from anchorlens.extras.control.tries import Tries, folder_lock
from anchorlens.files import Checkpoint, LoadedModel, open_checkpoint, resolve
from anchorlens.models import choose_device
from anchorlens.recipes import RunConfig, identity
from anchorlens.tasks import Task, has_labels
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training import (
    MOST_WORKERS,
    check_runs,
    plausible_seconds,
    processes,
    progress_bar,
    training_plan,
)

MINUTES = 20.0
MOST_INTERVENTIONS = 100
_MOST_MINUTES = 10**6


@checked_arguments()
def control(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    task: Task | None = None,
    minutes: float = MINUTES,
    every: bool = False,
    interventions: Sequence[Intervention] = INTERVENTIONS,
    seed: int = 0,
    device: str | None = None,
    workers: int | None = None,
    dry_run: bool = False,
    progress: bool | float | None = None,
) -> Control:
    """Try interventions that may take a run from Phase 1 or 2 to a later phase.

    An attempt continues from the run's checkpoint or retrains from scratch. For a task without OOD data, the
    goal is the label `generalises` instead of Phase 3.

    `control` tries interventions in the order of the list until an attempt reaches Phase 3. On the CPU, one
    attempt runs on each core. `control` skips an attempt that would take longer than the rest of `minutes`.
    `control` estimates the time of an update from the run's log, and later from the attempts that have ended.
    The folder `out` stores finished attempts. A repeated call skips finished attempts and continues
    interrupted attempts.

    If the task can split the OOD test inputs into halves, `control` selects the best attempt on one half. The
    report uses the other half, so the selection does not bias the report. For tasks with two anchors, the
    selection uses even keys, and the report uses odd keys. Both halves use the same unseen pairs, so the
    result does not show whether the model composes other pairs.

    Args:
        run: the folder of a run, or an anchorlens checkpoint that records its training.
        out: the folder for `control.json` (this result) and for the run of each attempt. The folder must be
            new, empty, or from an earlier call for the same checkpoint. A dry run needs no folder.
        task: the task of the run, for a task that reads files. The field `data` of this task gives the paths
            of the files. Default: the task in the checkpoint.
        minutes: the total time budget, > 0. With several workers, running attempts stop at the end of this
            time.
        every: whether to try all attempts that time allows, even if an attempt reaches Phase 3.
        interventions: the interventions to try, in order.
        seed: the seed of the noise in the evaluations.
        device: the device of the attempts: auto, cpu, cuda, cuda:N or mps. Default: the device in the recipe.
        workers: the number of processes on the CPU. Default: one per core.
        dry_run: whether to list the attempts in order with their estimated minutes, without training.
        progress: the progress display, as for `train`.

    Returns:
        Every attempt with its phase, accuracies (0..1) and minutes, and the folder of the best attempt's run.

    Raises:
        ValueError: If the run has no phase or is in Phase 3, or an argument is invalid. The task must have
            labels. The checkpoint must record its training. The folder may hold only files of earlier calls
            for the checkpoint.
        CheckpointError: If a file cannot be read completely and safely.
        OSError: If writing fails. Finished attempts are kept.
        RuntimeError: If a process was killed. Finished attempts are kept.

    Example:
        >>> control("runs/g0.5", "runs/g0.5-control", minutes=20)  # doctest: +SKIP
        Control(Phase 2 without commutativity; halve: Phase 3, in runs/g0.5-control/halve)

    Source: Complexity control by initialisation and weight decay is from arXiv 2405.05409 and 2501.08537. The
    application of complexity control to a trained model is ours.
    """
    began = time.monotonic()
    check_number("minutes", minutes, above=0, limit=_MOST_MINUTES)
    check_number("seed", seed, minimum=0, integer=True)
    check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True, optional=True)
    names = {one.name for one in interventions if isinstance(one, Intervention)}
    if not 0 < len(interventions) == len(names) <= MOST_INTERVENTIONS:
        raise ValueError(
            f"interventions must be a list of 1 to {MOST_INTERVENTIONS} interventions with different names, "
            f"got {safe_repr(interventions)}. Give objects of the class Intervention"
        )
    if out is None and not dry_run:
        raise ValueError("out must be the folder of the attempts, got none. Give a folder")
    origin, recipe = _opened(run, device, task)
    before = _answers_before(origin, recipe, seed)
    trials = [_trial(recipe, str(origin.file), one) for one in interventions]
    runs = {attempt.name: trial for attempt, trial in trials if trial is not None}
    pace = _seconds_per_update(origin.checkpoint, list(runs.values()))
    attempts = [replace(one, estimate=one.steps * pace / 60) if trial else one for one, trial in trials]
    halves = bool(recipe.task.halves)
    found = Control(str(run), origin.sha256, before, tuple(attempts), minutes, 0.0, halves, seed)
    if dry_run or out is None:
        return replace(found, minutes=(time.monotonic() - began) / 60)
    with folder_lock(Path(out), origin.sha256):
        tries = Tries(found, runs, pace, Path(out), began, every)
        total = round(60 * minutes)

        def by_now() -> int:
            return min(total, round(time.monotonic() - began))

        with progress_bar(total, enabled=progress, what="trying", unit="second", ask=by_now) as show:
            show(by_now(), "")
            tries.carry_out(processes(list(runs.values()), workers) if runs else 1, show)
    return tries.result()


def _opened(
    path: str | os.PathLike[str], device: str | None, task: Task | None
) -> tuple[LoadedModel, RunConfig]:
    """Open a checkpoint that records its training, and return it with its run."""
    opened = resolve(open_checkpoint(path), task)
    checkpoint = opened.checkpoint
    train = checkpoint.train_config
    if train is None:
        raise ValueError(
            f"{safe_text(path)}: the checkpoint must record its training, got a {opened.kind} checkpoint "
            "without data and recipe. Give a run or checkpoint of anchorlens train"
        )
    if not has_labels(checkpoint.task.metrics):
        raise ValueError(
            f"{safe_text(path)}: the task must have phases, got the task {checkpoint.task.kind}. Give a run "
            "of a task with train and ID accuracy"
        )
    if device is not None:
        train = replace(train, device=device)
    choose_device(train.device)
    opened = replace(opened, file=opened.file.resolve())
    return opened, RunConfig(checkpoint.task, checkpoint.model_config, train)


def _answers_before(origin: LoadedModel, run: RunConfig, seed: int) -> PhaseAnswers:
    """Evaluate the run, which must be in Phase 1 or 2, or without OOD not yet generalise."""
    where = choose_device(run.train_config.device)
    with numeric_settings(where, run.train_config.threads):
        before = PhaseAnswers.of(origin.checkpoint.evaluate(device=where, seed=seed))
    if before.stage not in (1, 2):
        raise ValueError(
            f"{safe_text(origin.file)}: the run must be in Phase 1 or 2, or without OOD memorise, got "
            f"{before.phase.label}: {before.phase.reason}. Give another run, or train an underfit run for "
            "longer, for example with train --from"
        )
    return before


def _seconds_per_update(checkpoint: Checkpoint, runs: Sequence[RunConfig]) -> float:
    """Return the seconds of an update by the run's log, or measured if the log does not give them."""
    step, seconds = checkpoint.metrics.get("step"), plausible_seconds(checkpoint.metrics.get("seconds"))
    if isinstance(step, int) and step > 0 and seconds:
        return seconds / step
    if not runs:
        return 0.0
    measured = training_plan(runs[:1], seconds=1.0)
    return (measured.seconds or 0.0) / measured.steps


def _trial(original: RunConfig, start: str, one: Intervention) -> tuple[Attempt, RunConfig | None]:
    """Return the record and the run of an attempt, or no run and the reason why it cannot be tried."""
    about = (one.name, one.why, one.source, one.anew, one.baseline)
    changes, steps = "", 0
    try:
        run = one.applied(original, start)
        changes, steps = _in_words(one, run), run.train_config.total_steps
        check_runs([run], starts=False)
        if identity(run) == identity(original):
            raise ValueError("the intervention must change the run, got no change. Change another field")
    except ValueError as error:
        note = f"cannot be tried: {safe_text(error, 600)}"
        return Attempt(*about, changes, steps, "skipped", note=note), None
    return Attempt(*about, changes, steps, "planned"), run


def _in_words(one: Intervention, run: RunConfig) -> str:
    """Describe the fields that an attempt changes, with their new values."""
    values = run.model_config.to_dict() | run.train_config.to_dict()
    return ", ".join(f"{name} {values[name]}" for name in (*one.fields, *one.added))
