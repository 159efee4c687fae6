"""Group runs into jobs that are trained together, and distribute the jobs over processes.

A training process appends its progress to a file, which the process that started it reads as it grows. An
error of `on_log` stops all jobs. With `on_log`, a job therefore waits after each line for an answer: a file
`.go` next to its own file, or the file `stop`.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.child_processes import process_pool
from anchorlens.training.loop import loop_key
from anchorlens.training.plan import processes, trained_together
from anchorlens.training.progress import Lines, Show, progress_bar

LOOK_SECONDS, WAIT_SECONDS = 0.005, 0.001
"""Seconds between two looks at the files, and between two looks for an answer."""

Job = TypeVar("Job")
Report = Callable[[int, Mapping[str, Any]], None]
"""Called with the index of a run and a line of its log."""


def grouped(
    runs: Sequence[RunConfig], at_once: Callable[[RunConfig, int], int] = trained_together
) -> list[list[int]]:
    """Group the indices of runs that one loop can train together.

    A group has at most `at_once(run, n_alike)` runs, where `n_alike` is the number of runs that can be
    trained together.
    """
    alike: dict[object, list[int]] = {}
    for place, run in enumerate(runs):
        alike.setdefault(loop_key(run), []).append(place)
    groups = []
    for places in alike.values():
        size = 1 if len(places) == 1 else at_once(runs[places[0]], len(places))
        groups += [places[start : start + size] for start in range(0, len(places), size)]
    return groups


def submit_all(
    jobs: Iterable[Job],
    submit: Callable[[Job], Future[Any]],
    collect: Callable[[Job, Future[Any]], Iterable[Job]],
    at_a_time: int | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Submit jobs, and collect each job when it has ended.

    Args:
        jobs: the jobs in the order of submission.
        submit: the function that submits one job.
        collect: the function that is called with an ended job and its future, and returns jobs to submit
            next.
        at_a_time: the largest number of jobs that are submitted at the same time. None submits all jobs at
            once.
        meanwhile: the function that this thread calls every `LOOK_SECONDS`.
    """
    waiting, n_out = deque(jobs), 0
    arrived: queue.SimpleQueue[tuple[Job, Future[Any]]] = queue.SimpleQueue()
    while waiting or n_out:
        while waiting and (at_a_time is None or n_out < at_a_time):
            job = waiting.popleft()
            submit(job).add_done_callback(lambda future, job=job: arrived.put((job, future)))
            n_out += 1
        try:
            ended = arrived.get(timeout=None if meanwhile is None else LOOK_SECONDS)
        except queue.Empty:
            ended = None
        if meanwhile is not None:
            meanwhile()
        if ended is not None:
            n_out -= 1
            waiting.extend(collect(*ended))


def train_in_jobs(
    train: Callable[..., Iterable[Any]],
    runs: Sequence[RunConfig],
    *columns: Sequence[Any],
    workers: int | None,
    progress: bool | float | None,
    report: Report | None = None,
    advice: str = "",
) -> list[Any]:
    """Train runs in groups that can be trained together, in one or more processes.

    Args:
        train: a function at the top level of a module. The arguments of `train` are the runs of a job, the
            entries of these runs in each of `columns`, and `show`. `train` returns one result for each run,
            and calls `show` with the updates made in this job, a text, and new log lines. Each log line comes
            with the index of its run in the job. An error of `show` must end the function.
        runs: the runs to train, which must have been checked.
        columns: more arguments of `train`, each with one entry for each run.
        workers: the number of processes on the CPU. None means one process per core.
        progress: the display of progress, as for the argument `enabled` of `progress_bar`.
        report: the function that this thread calls with the index of a run and each new line of its log. If
            `report` raises an error, all runs end at their next `show`, and the error is raised again.
        advice: the text added to the error about a killed process, as for `process_pool`.

    Returns:
        The result of each run, in the order of `runs`.
    """
    n_processes, jobs = processes(runs, workers), grouped(runs)
    results: dict[int, Any] = {}
    with progress_bar(sum(run.train_config.total_steps for run in runs), enabled=progress) as show:
        course = _JobProgress(runs, show, report)

        def arguments(job: list[int]) -> list[list[Any]]:
            return [[column[place] for place in job] for column in (runs, *columns)]

        if n_processes == 1:
            for job in jobs:
                show_job = functools.partial(course.report, job)
                results.update(zip(job, train(*arguments(job), show=show_job), strict=True))
                course.end(job)
            return [results[place] for place in range(len(runs))]
        futures: list[Future[Any]] = []
        error: Exception | None = None
        with (
            tempfile.TemporaryDirectory(prefix="anchorlens-") as folder,
            process_pool(n_processes, advice) as executor,
        ):
            reports = _Reports(Path(folder))

            def submit(job: list[int]) -> Future[Any]:
                there = (train, reports.path(job), job, report is not None)
                futures.append(executor.submit(_train_there, *there, *arguments(job)))
                return futures[-1]

            def poll() -> None:
                nonlocal error
                try:
                    if error is None:
                        reports.poll(course.report)
                except Exception as raised:
                    error = raised
                    reports.stop()
                    for future in futures:
                        future.cancel()

            def collect(job: list[int], future: Future[Any]) -> Iterable[list[int]]:
                if error is None:
                    results.update(zip(job, future.result(), strict=True))
                    reports.path(job).unlink()
                    course.end(job)
                return ()

            submit_all(jobs, submit, collect, meanwhile=poll)
        if error is not None:
            raise error
    return [results[place] for place in range(len(runs))]


class _JobProgress:
    """The progress of all jobs: takes in their reports, shows their sum, and passes on their log lines."""

    def __init__(self, runs: Sequence[RunConfig], show: Show, report: Report | None) -> None:
        self.runs = runs
        self.show, self.pass_on = show, report
        self._steps: dict[int, int] = {}
        self._skipped = self._n_ended = 0

    def report(self, job: list[int], steps: int, text: str, lines: Lines = ()) -> None:
        """Update the progress of a job, and pass on its log lines. An error of the receiver is raised."""
        if job[0] not in self._steps:
            self._skipped += steps  # steps made before a run was resumed
        self._steps[job[0]] = steps
        self._show(text if len(self.runs) == 1 else "", lines if len(self.runs) == 1 else ())
        if self.pass_on is not None:
            for place, line in lines:
                self.pass_on(job[place], line)

    def end(self, job: list[int]) -> None:
        """Update the progress after a job has ended."""
        steps = sum(self.runs[place].train_config.total_steps for place in job)
        if job[0] not in self._steps:
            self._skipped += steps  # the runs had ended before
        self._steps[job[0]] = steps
        self._n_ended += len(job)
        self._show("")

    def _show(self, text: str, lines: Lines = ()) -> None:
        if len(self.runs) > 1:
            text = f"{self._n_ended} of {len(self.runs)} models"
        self.show(sum(self._steps.values()), text, lines, self._skipped)


class TrainingStopped(RuntimeError):  # noqa: N818 - no fault of the process that raises it
    """The parent process has stopped all jobs."""


class _Reports:
    """The folder in which training processes report their progress to the parent process."""

    def __init__(self, folder: Path) -> None:
        """Begin with no reports; the folder is empty."""
        self._folder = folder
        self._n_read: dict[str, int] = {}

    def path(self, job: list[int]) -> Path:
        """Return the path of a job's file."""
        return self._folder / f"{job[0]}.jsonl"

    def poll(self, report: Callable[[list[int], int, str, Lines], object]) -> None:
        """Call `report` with the job, updates, text and log lines of each new report, and answer it."""
        for entry in list(os.scandir(self._folder)):
            before = self._n_read.get(entry.name, 0)
            if not entry.name.endswith(".jsonl") or entry.stat().st_size == before:
                continue
            with open(entry.path, "rb") as file:
                file.seek(before)
                for line in file:
                    if line.endswith(b"\n"):
                        self._n_read[entry.name] = self._n_read.get(entry.name, 0) + len(line)
                        report(*json.loads(line))
                        Path(entry.path).with_suffix(".go").touch()

    def stop(self) -> None:
        """Stop every job at its next report."""
        (self._folder / "stop").touch()


def _train_there(
    train: Callable[..., Iterable[Any]], path: Path, job: list[int], answered: bool, *arguments: Any
) -> Iterable[Any]:
    """Train in this process, and report the progress in a file.

    Args:
        train: the function that trains the runs. Its arguments are `arguments` and `show`.
        path: the path of the job's file.
        job: the indices of the runs in the job.
        answered: whether to report log lines too, and to wait until the parent process has read each report.
        *arguments: the arguments of `train`.

    Raises:
        TrainingStopped: If the parent process has stopped all jobs.
    """
    go, stop = path.with_suffix(".go"), path.with_name("stop")
    with path.open("w", encoding="utf-8") as file:

        def show(steps: int, text: str, lines: Lines = ()) -> None:
            print(json.dumps([job, steps, "", lines if answered else ()]), file=file, flush=True)
            while answered and not (go.exists() or stop.exists()):
                time.sleep(WAIT_SECONDS)
            if stop.exists():
                raise TrainingStopped("all jobs were stopped")
            go.unlink(missing_ok=True)

        return train(*arguments, show=show)
