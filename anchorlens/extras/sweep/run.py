"""The function `sweep`, which trains all cells of a grid that are not in its folder yet, on any engine."""

from __future__ import annotations

import math
import os
import queue
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from pathlib import Path
from typing import Any

from anchorlens.configuration import checked_arguments
from anchorlens.extras.sweep.cells import SweepResult
from anchorlens.extras.sweep.engines import EngineError, SweepEngine
from anchorlens.extras.sweep.sweep_folder import NamedRun, SweepFolder
from anchorlens.extras.sweep.work import work
from anchorlens.recipes import RunConfig, field_advice
from anchorlens.safe import check_inside, ordinary_file
from anchorlens.training import (
    LONGEST_LINE,
    Show,
    check_runs,
    check_start,
    grouped,
    log_line,
    progress_bar,
    trained_together,
)

BREAKS = 3
"""The number of breaks of an engine in a row, without a finished cell, that end a sweep with an error."""
EVENTS = Path("/proc/vmstat")
"""The file where Linux counts the processes that it killed for lack of memory."""
PAUSE_SECONDS = 1.0
"""The pause in seconds before a broken engine is opened again."""

Job = list[NamedRun]
"""The number of cells of equal shape that one process trains together."""


@checked_arguments(field_advice)
def sweep(
    runs: Iterable[RunConfig],
    out: str | os.PathLike[str],
    *,
    engine: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: bool | float | None = None,
) -> SweepResult:
    """Train the runs of a sweep that are not finished yet.

    If the sweep stops, the same call continues the sweep.

    `sweep` recognises a finished run by its recipe. The recipe includes neither the machine nor the numbers
    of threads and log lines. The folder of a run appears atomically after the run is trained and measured. If
    the sweep is killed, only the steps after the last saved states are lost. If a run ends in an error,
    `sweep` records the error and continues with the other runs. Every run uses one thread unless its
    configuration sets more threads. All engines therefore give bit-equal results on CPUs of the same model.

    Args:
        runs: the runs, for example from `grid`. Other runs in the folder are kept.
        out: a new folder, or the folder of a sweep.
        engine: `serial`, `local`, `slurm`, or the address or scheduler file of a Dask cluster (see
            `SweepEngine`). Default: `local` if Dask is installed, else `serial`.
        workers: the number of processes of `local` or jobs of `slurm`. Default: one per core or GPU.
        retry_failed: whether to train failed runs again.
        progress: the display of progress, as for `train`.

    Returns:
        The runs in order, each finished or failed.

    Raises:
        ValueError: If runs or options are invalid, or two runs differ only in execution or logging. The
            folder must belong to a sweep that no other process trains.
        OSError: If writing fails, for example on a full disk. Finished runs are kept, and the same call
            continues the sweep.
        MemoryError: If a run does not fit in memory. The same call continues the sweep.
        EngineError: If the engine does not start, or fails several times in a row. The same call continues
            the sweep.

    Example:
        >>> runs = grid("quick", {"gamma": "0.3:0.8:0.05", "seed": "0:3"})  # doctest: +SKIP
        >>> sweep(runs, "sweeps/a")  # doctest: +SKIP
        SweepResult(sweeps/a: gamma (11) x seed (3); 33 finished)

    Source: the grids of arXiv 2405.05409 and 2501.08537.
    """
    runs = check_runs(runs, starts=False)
    chosen = SweepEngine(engine, workers)
    folder = SweepFolder(out)
    with_start = [run for run in runs if run.train_config.start is not None]
    for _, run in folder.missing(folder.runs_with_ids(with_start)):
        check_start(run)
    with folder.lock(runs) as cells:
        if retry_failed:
            for name, _ in cells:
                folder.failure(name).unlink(missing_ok=True)
        driver = _Driver(cells, folder, chosen)
        with progress_bar(driver.total_steps, enabled=progress, ask=driver.steps_by_now) as driver.show:
            driver.train()
        if not folder.missing(folder.stored()):
            shutil.rmtree(folder.out / "unfinished", ignore_errors=True)
        return folder.read(cells, any_size=True)


class _Driver:
    """The loop that submits cells to an engine, collects their results, and counts them."""

    show: Show

    def __init__(self, cells: list[NamedRun], folder: SweepFolder, engine: SweepEngine) -> None:
        self.cells = cells
        self.folder = folder
        self.engine = engine
        self.n_ended = self.steps = 0
        self.killed_before = killed_for_memory()
        self.total_steps = sum(run.train_config.total_steps for _, run in cells)

    def train(self) -> None:
        """Train until every run is finished or failed."""
        missing, n_breaks = self._missing(), 0
        while missing:
            broken = None
            try:
                runs = [run for _, run in missing]
                with self.engine.executor(runs, self.folder.unfinished("").resolve()) as executor:
                    self._give_out(executor, missing)
            except (BrokenExecutor, CancelledError, TimeoutError) as error:
                if getattr(error, "errno", None) is not None:
                    raise  # an error of the disk
                broken = error
            n_before, missing = len(missing), self._missing()
            if broken is not None:
                n_breaks = 1 if len(missing) < n_before else n_breaks + 1
                if n_breaks > BREAKS:
                    why = str(broken) or type(broken).__name__
                    raise EngineError(
                        f"the engine {self.engine.name!r} must run to the end of the sweep, got {n_breaks} "
                        f"failures in a row: {why}. Finished runs are kept. Run the same command again to "
                        "continue."
                    ) from broken
                time.sleep(PAUSE_SECONDS)

    def steps_by_now(self) -> int:
        """Count the updates so far, including the logged updates of unfinished runs."""
        logs = self.folder.unfinished("").glob("*/log.jsonl")
        return min(self.total_steps, self.steps + sum(map(last_step, logs)))

    def _missing(self) -> list[NamedRun]:
        """Return the cells that are neither finished nor failed, and update the counts."""
        missing = self.folder.missing(self.cells)
        self.n_ended = len(self.cells) - len(missing)
        self.steps = self.total_steps - sum(run.train_config.total_steps for _, run in missing)
        self._report()
        return missing

    def _give_out(self, executor: Executor, missing: Sequence[NamedRun]) -> None:
        runs, out = [run for _, run in missing], self.folder.out.resolve()
        share = math.ceil(len(runs) / self.engine.n_processes)  # so that no process is idle

        def at_once(run: RunConfig, n: int) -> int:
            return executor.submit(trained_together, run, min(n, share)).result()

        groups = grouped(runs, at_once)
        submit_all(
            [[missing[place] for place in group] for group in groups],
            lambda job: executor.submit(work, job, out),
            self._take_in,
            at_a_time=1 if self.engine.name == "serial" else None,
        )

    def _take_in(self, job: Job, future: Future[None]) -> list[Job]:
        """Count the cells of a job that has ended; return the jobs to submit again."""
        try:
            future.result()
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # Dask's error for a job whose workers kept dying
                raise
            if len(job) > 1:  # find the cell at fault by trying each alone
                return [[cell] for cell in job]
            if self.engine.name == "local" and killed_for_memory() > self.killed_before:
                raise MemoryError(
                    f"the processes for the run {job[0][0]} must have enough memory, got processes that the "
                    "system killed because memory ran out. Use fewer workers, or a smaller model or batch"
                ) from error
            self.folder.fail(job[0][0], "every process that trained it was killed", str(error))
        self.n_ended += len(job)
        self.steps += sum(run.train_config.total_steps for _, run in job)
        self._report()
        return []

    def _report(self) -> None:
        self.show(self.steps_by_now(), f"{self.n_ended} of {len(self.cells)} runs")


def killed_for_memory(events: Path = EVENTS) -> int:
    """Return how many processes Linux has killed for lack of memory, or 0 if the count is unknown."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def last_step(path: Path) -> int:
    """Return the step of the last complete line of a log, or 0 if no complete line can be read."""
    try:
        check_inside(path.parent, path)
        with ordinary_file(path) as (file, size):
            file.seek(max(0, size - LONGEST_LINE))
            ends = file.read(LONGEST_LINE).rpartition(b"\n")[0]
    except (OSError, ValueError):
        return 0
    line = log_line(ends.rpartition(b"\n")[2])
    return 0 if line is None else line["step"]


def submit_all(
    jobs: Iterable[Any],
    submit: Callable[[Any], Future[Any]],
    collect: Callable[[Any, Future[Any]], Iterable[Any]],
    at_a_time: int | None = None,
) -> None:
    """Submit jobs, and collect each job when it has ended.

    Args:
        jobs: the jobs in the order of submission.
        submit: the function that submits one job.
        collect: the function that is called with an ended job and its future, and returns jobs to submit
            next.
        at_a_time: the largest number of jobs that are submitted at the same time. None submits all jobs at
            once.
    """
    waiting, n_out = deque(jobs), 0
    arrived: queue.SimpleQueue[tuple[Any, Future[Any]]] = queue.SimpleQueue()
    while waiting or n_out:
        while waiting and (at_a_time is None or n_out < at_a_time):
            job = waiting.popleft()
            submit(job).add_done_callback(lambda future, job=job: arrived.put((job, future)))
            n_out += 1
        waiting.extend(collect(*arrived.get()))
        n_out -= 1
