"""`control`: try interventions on a run that ended in Phase 1 or 2, within a time budget."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from anchorlens.configuration import check_number, checked_arguments
from anchorlens.extras.control.interventions import INTERVENTIONS, Intervention
from anchorlens.extras.control.result import Attempt, Control, PhaseAnswers
from anchorlens.extras.control.tries import Trial, Tries, folder_lock
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.importers.inputs import resolve
from anchorlens.models.devices import choose_device
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.metric import has_labels
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.engine import numeric_settings
from anchorlens.training.plan import MOST_WORKERS, check_runs, processes
from anchorlens.training.progress import progress_bar
from anchorlens.training.recipes.identity import identity
from anchorlens.training.recipes.run_config import RunConfig
from anchorlens.training.run_folder import plausible_seconds

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
    """Take a run that ended in Phase 1 or 2 further: try interventions from its checkpoint or its start.

    For a task without OOD the goal is that a run that memorises generalises, in place of Phase 3.

    Interventions are tried in the order of the list, on the CPU as many at a time as there are cores, until
    an attempt reaches Phase 3. An attempt that is not expected to end within `minutes` is not begun; the time
    of an update is taken from the run's log, and after the first attempt from the attempts so far. Ended
    attempts are in `out` and are not trained again by the same call, which continues those that were cut off.

    Where the task supports halves, the best attempt is chosen by one half of the left-out questions (for two
    anchors: even keys) and reported on the other (odd keys), so that the report is not biased by the choice.
    Both halves ask the same unseen pairs, so the result does not say whether other pairs are composed.

    Args:
        run: a run's folder, or a checkpoint of ours that says how it was trained.
        out: the folder for `control.json`, this result, and a run's folder for each attempt; new, empty or
            that of an earlier call for the same checkpoint. A dry run needs none.
        task: the task of the run with the paths of its files (`data`), for a task that has some; None for the
            task as the checkpoint describes it.
        minutes: time budget for everything, > 0. Attempts that are still running are ended then; with one
            worker they are not.
        every: whether to try everything that fits, also after Phase 3 is reached.
        interventions: the interventions to try, in order.
        seed: seed of the noise in the evaluations.
        device: device of the attempts: auto, cpu, cuda, cuda:N or mps; None for that of the run's recipe.
        workers: processes on the CPU; None for one per core.
        dry_run: train nothing; only list the attempts in order with the estimated minutes of each.
        progress: as for `train`.

    Returns:
        Every attempt with its phase, accuracies (0..1) and minutes, and the best as a run's folder.

    Raises:
        ValueError: a run in no phase or in Phase 3, a task without labels, a checkpoint that does not say how
            it was trained, unusable options, or a folder that holds something else.
        CheckpointError: a file that cannot be read completely and safely.
        OSError: writing failed; ended attempts are kept.
        RuntimeError: a process was killed; ended attempts are kept.

    Example:
        >>> control("runs/g0.5", "runs/g0.5-control", minutes=20)  # doctest: +SKIP
        Control(Phase 2 without commutativity; halve: Phase 3, in runs/g0.5-control/halve)

    Source: complexity control by initialisation and decay, arXiv 2405.05409 and 2501.08537; applying it to a
    trained model is ours.
    """
    began = time.monotonic()
    check_number("minutes", minutes, above=0, limit=_MOST_MINUTES)
    check_number("seed", seed, minimum=0, integer=True)
    if workers is not None:
        check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True)
    _check_interventions(interventions)
    if out is None and not dry_run:
        raise ValueError("out must be the folder of the attempts, got none")
    origin = _opened(run, device, task)
    before = _answers_before(origin, seed)
    trials = [_trial(origin, one) for one in interventions]
    halves = bool(origin.run.task.halves)
    found = Control(str(run), origin.sha256, before, (), minutes, 0.0, halves, seed)
    with contextlib.nullcontext() if dry_run or out is None else folder_lock(Path(out), origin.sha256):
        tries = Tries(
            found,
            origin.seconds_per_update,
            trials,
            None if dry_run or out is None else Path(out),
            began,
            every,
        )
        if not dry_run:
            runs = [trial.run for trial in trials if trial.run is not None]
            total = round(60 * minutes)

            def by_now() -> int:
                return min(total, round(time.monotonic() - began))

            with progress_bar(total, enabled=progress, what="trying", unit="second", ask=by_now) as show:
                show(by_now(), "")
                tries.carry_out(processes(runs, workers) if runs else 1, show)
    return tries.result()


class _Origin(NamedTuple):
    """The original run."""

    run: RunConfig
    file: Path
    sha256: str
    checkpoint: Checkpoint
    seconds_per_update: float | None
    """From its log; None if unknown."""


def _check_interventions(interventions: Sequence[Intervention]) -> None:
    some = list(interventions)
    if not 0 < len(some) <= MOST_INTERVENTIONS or not all(isinstance(one, Intervention) for one in some):
        raise ValueError(
            f"interventions must be a list of one Intervention or more, at most {MOST_INTERVENTIONS}, got "
            f"{safe_repr(interventions)}"
        )
    names = [one.name for one in some]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"interventions must have different names, got {twice} twice")


def _opened(path: str | os.PathLike[str], device: str | None, task: Task | None) -> _Origin:
    """The run of a checkpoint that says how it was trained."""
    opened = open_checkpoint(path)
    checkpoint = resolve(opened, task).checkpoint
    assert checkpoint is not None
    train = checkpoint.train_config
    if train is None:
        raise ValueError(
            f"{safe_text(path)}: the {opened.kind} checkpoint does not say how it was trained, but an "
            f"attempt needs the same data and recipe; give a run or checkpoint of anchorlens train"
        )
    if not has_labels(checkpoint.task.metrics):
        raise ValueError(
            f"{safe_text(path)}: the task {checkpoint.task.kind} has no phases, so control cannot measure "
            f"what helps; give a run of a task that measures train and ID accuracy"
        )
    if device is not None:
        train = replace(train, device=device)
    choose_device(train.device)
    step, seconds = checkpoint.metrics.get("step"), plausible_seconds(checkpoint.metrics.get("seconds"))
    known = seconds / step if isinstance(step, int) and step > 0 and seconds else None
    run = RunConfig(checkpoint.task, checkpoint.model_config, train)
    return _Origin(run, opened.file.resolve(), opened.sha256, checkpoint, known)


def _answers_before(origin: _Origin, seed: int) -> PhaseAnswers:
    """Evaluate the run, which must be in Phase 1 or 2, or without OOD not yet generalise."""
    train = origin.run.train_config
    where = choose_device(train.device)
    with numeric_settings(where, train.threads):
        before = PhaseAnswers.of(origin.checkpoint.evaluate(device=where, seed=seed))
    phase, name = before.phase, safe_text(origin.file)
    if before.stage == 3:
        state = "generalises" if phase.solution else "is in Phase 3"
        raise ValueError(f"{name}: it {state} already ({phase.reason}); nothing is left to try")
    if before.stage == 0:
        advice = "; control starts from Phase 1 or 2, or without OOD from a run that memorises"
        if phase.cause == "underfit":
            advice = ", with train --from for example, then control it"
        raise ValueError(f"{name}: it has no phase: {phase.reason}{advice}")
    return before


def _trial(origin: _Origin, one: Intervention) -> Trial:
    """The attempt of an intervention on the run, or the reason why it cannot be tried."""
    run, note, changes, steps = None, "", "", 0
    try:
        run = one.applied(origin.run, str(origin.file))
        changes, steps = _in_words(one, run), run.train_config.total_steps
        check_runs([run], starts=False)
        if identity(run) == identity(origin.run):
            raise ValueError("it is the run itself")
    except ValueError as error:
        run, note = None, f"cannot be tried: {safe_text(error, 600)}"
    outcome = "skipped" if run is None else "planned"
    words = (one.name, one.why, one.source, one.anew, one.baseline, changes)
    return Trial(run, Attempt(*words, steps, outcome, note=note))


def _in_words(one: Intervention, run: RunConfig) -> str:
    """The fields that an attempt changes, with their new values."""
    values = run.model_config.to_dict() | run.train_config.to_dict()
    return ", ".join(f"{name} {values[name]}" for name in (*one.fields, *one.added))
