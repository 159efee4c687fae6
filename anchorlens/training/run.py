"""`train` and `train_many`: train, save and evaluate models from task, model configuration and recipe."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from anchorlens.configuration import as_path, check_number, checked_arguments
from anchorlens.engine import numeric_settings
from anchorlens.files.checkpoint import starting_point, training_set
from anchorlens.models.alterations import settings_kept
from anchorlens.models.config import ModelConfig
from anchorlens.models.devices import choose_device
from anchorlens.recipes.run_config import RunConfig, field_advice
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.jobs import JobProgress, Report, train_in_jobs
from anchorlens.training.loop import Loop, Member, OnLogError, TrainingDiverged, TrainResult
from anchorlens.training.plan import MOST_WORKERS, check_runs, check_start
from anchorlens.training.progress import Lines, progress_bar
from anchorlens.training.run_folder import RunFolder, has_ended, read_log, stored_run

Folder = str | os.PathLike[str]
OnLog = Callable[[dict[str, Any]], object]
"""A function of one log line."""


class Logger(Protocol):
    """An object whose method `log` is called with each log line."""

    def log(self, line: dict[str, Any], /) -> object:
        """Take in a line."""


@checked_arguments(field_advice)
def train(
    task: Task | None = None,
    model_config: ModelConfig | None = None,
    train_config: TrainConfig | None = None,
    *,
    out: Folder | None = None,
    resume: bool = False,
    progress: bool | float | None = None,
    on_log: OnLog | Logger | None = None,
) -> TrainResult:
    """Train a HookedTransformer on a task, and evaluate the trained model.

    Args:
        task: the task. Default: the two-anchor task of arXiv 2405.05409 and 2501.08537.
        model_config: the shape and gamma of the model. Default: the `quick` preset, fitted to the task.
        train_config: the recipe. Default: the `quick` preset.
        out: a new or empty folder for the log, checkpoints and the state to resume from. Default: no files.
        resume: whether to continue the run in `out`. If `out` contains a run, a configuration that is None is
            read from `out`. On the CPU with the same number of threads, a resumed run and an uninterrupted
            run have bit-equal final weights.
        progress: the display of progress. None shows a bar in a terminal, a curve in a notebook, and
            elsewhere a line every 5 s. A number sets the seconds between lines. False shows nothing.
        on_log: the function that is called with each line of the log, or a logger from
            `anchorlens.training.logging`. A line is a dict of `step`, `epoch` (the passes over the data so
            far, a float), and the entries of `TrainResult.log`. A value is a number, or None if the task
            could not measure the value. A resumed run repeats the steps and lines after its last saved state.

    Returns:
        A `TrainResult` with the model in evaluation mode, its checkpoint, its behaviour and the log.

    Raises:
        ValueError: If configurations are invalid or contradictory, or `out` contains other files.
        TrainingDiverged: If the loss became NaN or infinite. The last good weights are in `out/ckpt.pt`.
        OnLogError: If `on_log` raised an error. A run with a folder first saves its state, so that you can
            resume the run.
        CheckpointError: If the state to resume from is damaged.

    Example:
        >>> tiny = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
        >>> train(model_config=tiny, train_config=TrainConfig(steps=2, n_samples=512, n_checkpoints=0)).status
        'finished'

    Source: the cross-entropy at the targets and the training recipe of arXiv 2405.05409 and 2501.08537.
    """
    out = None if out is None else as_path("out", out)
    stored = stored_run(out) if resume and out is not None else None
    if stored is not None:
        task = task or stored.task
        model_config = model_config or stored.model_config
        train_config = train_config or stored.train_config
    task = task_or_default(task)
    run = RunConfig(task, model_config or task.model_class.for_task(task), train_config or TrainConfig())
    runs = check_runs([run], starts=False)
    report = None if on_log is None else _reporter(on_log, runs, names_run=False)
    _check_starts(runs, [out], resume)
    with progress_bar(run.train_config.total_steps, enabled=progress) as show:
        course = JobProgress(runs, show, report)
        (result,) = train_together(runs, [out], functools.partial(course.report, [0]), resume=resume)
        course.end([0])
    if result.status == "diverged":
        assert result.message is not None
        raise TrainingDiverged(result.message)
    return result


@checked_arguments(field_advice)
def train_many(
    runs: Iterable[RunConfig],
    *,
    outs: Iterable[Folder | None] | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: bool | float | None = None,
    on_log: OnLog | Logger | None = None,
) -> list[TrainResult]:
    """Train many models, with as many in parallel as the hardware allows.

    On CUDA, runs of equal shape and duration form a stack, and the stack updates all its runs at once. If the
    memory is too small for all runs, the function splits the stack. On the CPU, each run has a separate
    process. By default, one process per core runs at a time. In our measurements on the CPU, processes were
    faster than a stack or threads.

    Args:
        runs: the configurations of the runs, for example from `preset`. The runs may differ in all fields.
        outs: a new or empty folder for each run, as for `train`, or None for a run without files. Default: no
            files. The function checks all folders before the training.
        resume: whether to continue the runs in the folders. The function reads the results of ended runs.
        workers: the number of processes on the CPU. None means one process for each core, or one process for
            every `threads` cores if the runs set the field `threads`. With 1, this process trains one run
            after another.
        progress: the display of progress. None shows a bar in a terminal, a curve in a notebook, and
            elsewhere a line every 5 s. A number sets the seconds between lines. False shows nothing.
        on_log: the same argument as for `train`. Each line also has the entry `run`, the index of the line's
            run in `runs`. The function or logger is always called in this process and thread.

    Returns:
        One result for each run, in the order of `runs`. A run whose loss became NaN or infinite has the
        status `diverged`, a message, and the last good weights. A diverged run does not affect other runs,
        except for their rounding on CUDA.

    Raises:
        ValueError: If configurations are invalid or contradictory.
        ValueError: If folders contain other files, or the numbers of folders and runs differ.
        CheckpointError: If a state to resume from is damaged.
        RuntimeError: If a worker process was killed. With `resume`, you can continue the runs that have
            folders.
        OnLogError: If `on_log` raised an error. Every run with a folder first saves its state, so that you
            can resume the run.

    Example:
        >>> from anchorlens.recipes.presets import preset
        >>> small = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_samples": 512, "steps": 2}
        >>> runs = [preset("quick", gamma=gamma, **small) for gamma in (0.3, 0.7)]
        >>> [result.checkpoint.model_config.gamma for result in train_many(runs, workers=1)]
        [0.3, 0.7]

    Source: the grids and the training recipe of arXiv 2405.05409 and 2501.08537.
    """
    runs = check_runs(runs, starts=False)
    folders = _folders(outs, len(runs))
    report = None if on_log is None else _reporter(on_log, runs, names_run=True)
    _check_starts(runs, folders, resume)
    check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True, optional=True)
    for run, folder in zip(runs, folders, strict=True):
        if folder is not None and len(runs) > 1:
            RunFolder(folder, run, resume=resume).close()
    advice = ". Runs with folders continue with resume"
    together = functools.partial(train_together, resume=resume)
    return train_in_jobs(
        together, runs, folders, workers=workers, progress=progress, report=report, advice=advice
    )


def _check_starts(runs: Sequence[RunConfig], folders: Sequence[Path | None], resume: bool) -> None:
    """Check the checkpoints that the runs to train start from."""
    for run, folder in zip(runs, folders, strict=True):
        if not (resume and folder is not None and has_ended(folder)):
            check_start(run)


def _reporter(on_log: OnLog | Logger, runs: Sequence[RunConfig], names_run: bool) -> Report:
    """Return a function that passes log lines to `on_log`, and raises OnLogError if `on_log` raises.

    If `names_run` is true, each line gets the index of its run.
    """
    call = on_log if callable(on_log) else getattr(on_log, "log", None)
    if not callable(call):
        raise ValueError(
            f"on_log must be a function of one dict, or have a method log(dict), got {safe_repr(on_log)}. "
            "Give a function"
        )

    def report(place: int, line: Mapping[str, Any]) -> None:
        epoch = line["step"] / runs[place].train_config.steps_per_epoch
        told = {"step": line["step"], "epoch": epoch, **line}
        try:
            with settings_kept():
                call({"run": place, **told} if names_run else told)
        except Exception as error:
            of_run = f" of run {place}" if names_run else ""
            raise OnLogError(
                f"on_log raised {type(error).__name__} at step {line['step']:,}{of_run}: "
                f"{safe_text(error, 600)}. The error is in on_log, not in the training. A run with a folder "
                "(out) has saved its state and continues with resume (--resume)"
            ) from error

    return report


def _folders(outs: Iterable[Folder | None] | None, n_runs: int) -> list[Path | None]:
    """Return a folder or None for each run."""
    is_path = isinstance(outs, str | os.PathLike)
    listed = [None] * n_runs if outs is None else [outs] if is_path else list(outs)
    folders = [None if out is None else as_path("outs", out) for out in listed]
    places = [folder.resolve() for folder in folders if folder is not None]
    if is_path or len(folders) != n_runs or len(set(places)) < len(places):
        raise ValueError(
            f"outs must be a list of {n_runs} different folders, one for each run, got {safe_repr(outs)}. "
            "Give a folder for each run"
        )
    return folders


def train_together(
    runs: Sequence[RunConfig],
    paths: Sequence[Path | None],
    show: Callable[[int, str, Lines], object] = lambda done, text, lines: None,
    *,
    resume: bool,
) -> list[TrainResult]:
    """Train runs of equal `loop_key` in stacks, and read the results of ended runs."""
    train = runs[0].train_config
    device = choose_device(train.device)
    with contextlib.ExitStack() as held:
        folders: list[RunFolder | None] = []
        for run, path in zip(runs, paths, strict=True):
            folder = None if path is None else RunFolder(path, run, resume=resume)
            folders.append(folder if folder is None else held.enter_context(contextlib.closing(folder)))
        held.enter_context(numeric_settings(device, train.threads, tf32=train.matmul == "tf32"))
        members = list(_members(runs, folders, device))

        def report(text: str, lines: Lines) -> None:
            show(sum(member.step for member in members), text, lines)

        if any(member.result is None for member in members):
            report("", ())
        for step in sorted({member.step for member in members if member.result is None}):
            Loop([m for m in members if m.result is None and m.step == step], device).run(report)
        return [member.result for member in members if member.result is not None]


def _members(
    runs: Sequence[RunConfig], folders: Sequence[RunFolder | None], device: torch.device
) -> Iterator[Member]:
    """Yield the runs as members at their current step: the start, a saved state, or the end of the run."""
    sets = {}
    for place, (run, folder) in enumerate(zip(runs, folders, strict=True)):
        source = (run.task, run.train_config.seed, run.train_config.n_samples)
        if source not in sets:
            sets[source] = training_set(run.task, run.train_config)
        member = Member(run, sets[source], folder, place=place)
        if folder is not None and has_ended(folder.path):
            member.result = _finished(folder, run.task, device)
            member.step = member.result.checkpoint.step or 0
        else:
            member.start = starting_point(run.train_config)
            if folder is not None:
                _resume(member, folder, device)
        yield member


def _resume(member: Member, folder: RunFolder, device: torch.device) -> None:
    state = folder.load_state()
    folder.begin()
    if state is not None:
        header, member.state = state
        member.step = header["step"]
        if device.type == "cpu" and header["threads"] != torch.get_num_threads():
            warnings.warn(
                f"resuming with {torch.get_num_threads()} threads a run begun with "
                f"{header['threads']}: the last digits will differ from an uninterrupted run",
                stacklevel=6,
            )
    member.log = folder.open_log(member.step)


def _finished(folder: RunFolder, task: Task, device: torch.device) -> TrainResult:
    """Return the result of a run that has already ended, measured on its last checkpoint."""
    checkpoint, status = folder.load_final()
    checkpoint = replace(checkpoint, task=task)  # the task's files may have moved
    message = None
    if status == "diverged":
        message = (
            f"training diverged after step {checkpoint.step}; the weights of that step are in "
            f"{folder.path / 'ckpt.pt'}; start again in another folder with a smaller lr or a larger gamma"
        )
    behaviour = checkpoint.evaluate(device=device)
    log = read_log(folder.path / "log.jsonl")
    return TrainResult(checkpoint, behaviour, tuple(log), status, folder.path, message)
