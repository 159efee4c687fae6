"""Group runs into jobs that are trained together, and distribute the jobs over processes.

A training process writes each report of its progress to a file, which the process that started it reads and
removes. An error of `on_log` or of a job stops all jobs. With `on_log`, a job therefore waits after each
report until its file is removed, or the file `stop` is there.
"""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.child_processes import process_pool
from anchorlens.training.loop import loop_key
from anchorlens.training.plan import processes, trained_together
from anchorlens.training.progress import Lines, Show, progress_bar

LOOK_SECONDS, WAIT_SECONDS = 0.005, 0.001
"""Seconds between two looks at the reports, and between two looks for an answer."""

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
        course = JobProgress(runs, show, report)

        def arguments(job: list[int]) -> list[list[Any]]:
            return [[column[place] for place in job] for column in (runs, *columns)]

        if n_processes == 1:
            for job in jobs:
                show_job = functools.partial(course.report, job)
                results.update(zip(job, train(*arguments(job), show=show_job), strict=True))
                course.end(job)
            return [results[place] for place in range(len(runs))]
        with (
            tempfile.TemporaryDirectory(prefix="anchorlens-") as made,
            process_pool(n_processes, advice) as executor,
        ):
            folder = Path(made)
            waiting = {
                executor.submit(_train_there, train, folder, job, report is not None, *arguments(job)): job
                for job in jobs
            }
            try:
                while waiting:
                    time.sleep(LOOK_SECONDS)
                    ended = [future for future in waiting if future.done()]
                    for path in sorted(folder.glob("*.json")):
                        course.report(*json.loads(path.read_bytes()))
                        path.unlink()
                    for future in ended:
                        job = waiting.pop(future)
                        results.update(zip(job, future.result(), strict=True))
                        course.end(job)
            except Exception:
                (folder / "stop").touch()
                for future in waiting:
                    future.cancel()
                while not all(future.done() for future in waiting):
                    time.sleep(LOOK_SECONDS)
                raise
    return [results[place] for place in range(len(runs))]


class JobProgress:
    """The progress of all jobs: takes in their reports, shows their sum, and passes on their log lines."""

    def __init__(self, runs: Sequence[RunConfig], show: Show, report: Report | None) -> None:
        self.runs = runs
        self.show, self.pass_on = show, report
        self._steps: dict[int, int] = {}
        self._skipped = self._n_ended = 0

    def report(self, job: list[int], steps: int, text: str, lines: Lines = ()) -> None:
        """Update the progress of a job, and pass on its log lines. An error of the receiver is raised."""
        if job[0] not in self._steps:
            self._skipped += steps  # made before a run was resumed, or all of runs that had ended before
        self._steps[job[0]] = steps
        done = sum(self._steps.values())
        shown = lines
        if len(self.runs) > 1:
            text, shown = f"{self._n_ended} of {len(self.runs)} models", ()
        self.show(done, text, shown, self._skipped)
        if self.pass_on is not None:
            for place, line in lines:
                self.pass_on(job[place], line)

    def end(self, job: list[int]) -> None:
        """Update the progress after a job has ended."""
        self._n_ended += len(job)
        self.report(job, sum(self.runs[place].train_config.total_steps for place in job), "")


def _train_there(
    train: Callable[..., Iterable[Any]], folder: Path, job: list[int], answered: bool, *arguments: Any
) -> Iterable[Any]:
    """Train in this process, and report the progress in files.

    Args:
        train: the function that trains the runs. Its arguments are `arguments` and `show`.
        folder: the folder of the reports.
        job: the indices of the runs in the job.
        answered: whether to report log lines too, and to wait until the parent process has read each report.
        *arguments: the arguments of `train`.

    Raises:
        RuntimeError: If the parent process has stopped all jobs.
    """
    stop, numbers = folder / "stop", itertools.count()

    def show(steps: int, text: str, lines: Lines = ()) -> None:
        path = folder / f"{job[0]}-{next(numbers):012}.json"
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps([job, steps, "", lines if answered else ()]), encoding="utf-8")
        unfinished.rename(path)
        while answered and path.exists() and not stop.exists():
            time.sleep(WAIT_SECONDS)
        if stop.exists():
            raise RuntimeError("all jobs were stopped")

    return train(*arguments, show=show)
