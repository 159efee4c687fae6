"""`sweep`: train every cell of a grid that is not there yet, on any engine, whatever is killed."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import TYPE_CHECKING

from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep.cells import SweepResult, cell_id
from anchorlens.sweep.engines import Engine, EngineError
from anchorlens.sweep.folder import SweepFolder
from anchorlens.sweep.work import Failure, cells_at_once, work
from anchorlens.training.loop import loop_key
from anchorlens.training.plan import check_runs
from anchorlens.training.progress import Update, progress_bar

if TYPE_CHECKING:
    from distributed import Security

BREAKS = 3
"""So often in a row, without a cell in between, an engine may break before a sweep gives up."""
PAUSE_SECONDS = 1.0
"""Before an engine that broke is opened again."""

Job = list[RunConfig]
"""Cells of equal shape that one process gets together."""


def sweep(
    runs: Iterable[RunConfig],
    out: str | os.PathLike[str],
    *,
    engine: str | None = None,
    workers: int | None = None,
    security: Security | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> SweepResult:
    """Train the cells that are not in the folder yet; the same call again continues.

    A cell's identity is a hash of its whole configuration; its folder appears, whole, when it is trained and
    measured, so that killing anything loses at most what is under way (and of that, what came after its last
    saved state). A cell that ends in an error is recorded with it, and stops nobody. Every cell is trained on
    one thread unless it asks for more: the same sweep gives the same bits on each engine of one kind of
    machine.

    Args:
        runs: cells, as `grid` gives them; those in the folder are kept, whether they are among these or not.
        out: a new folder, or that of a sweep.
        engine: `serial`, `local`, `slurm`, the address or the scheduler file of a Dask cluster (see
            `Engine`); None for `local` where Dask is installed, else `serial`.
        workers: processes of `local`, jobs of `slurm`; None for one per core or GPU.
        security: `distributed.Security` with the TLS files of a cluster that is running, or for `slurm`;
            None for those of Dask's configuration.
        retry_failed: train cells again that failed before.
        progress: None shows a bar in a terminal or a notebook; False never does.

    Returns:
        These cells in order, each finished or failed.

    Raises:
        ValueError: unusable runs or options, a folder that holds something else or is being trained.
        OSError: the disk refuses (it is full, ...); what is finished is kept, the same call continues.
        EngineError: the engine does not start, or broke again and again; the same call continues.

    Example:
        >>> runs = grid("quick", {"gamma": "0.3:0.8:0.05", "seed": "0:3"})  # doctest: +SKIP
        >>> sweep(runs, "sweeps/a")  # doctest: +SKIP
        SweepResult(sweeps/a: gamma (11) x seed (3); 33 finished)

    Source: the grids of arXiv 2405.05409 and 2501.08537.
    """
    runs = check_runs(runs)
    chosen = Engine(engine, workers, security)
    folder = SweepFolder(out)
    with folder.held(runs):
        if retry_failed:
            for run in runs:
                folder.failure(cell_id(run)).unlink(missing_ok=True)
        missing = _missing(runs, folder)
        with progress_bar(sum(run.train.total_steps for run in runs), enabled=progress) as show:
            _Driver(runs, folder, chosen, show).train(missing)
        if not _missing(folder.runs(), folder):
            shutil.rmtree(folder.out / "unfinished", ignore_errors=True)
        return folder.read(runs)


def _missing(runs: Sequence[RunConfig], folder: SweepFolder) -> list[RunConfig]:
    """Cells that are neither finished nor failed, each once."""
    by_id = {cell_id(run): run for run in runs}
    return [
        run
        for identity, run in by_id.items()
        if not folder.cell(identity).exists() and not folder.failure(identity).exists()
    ]


class _Driver:
    """Gives cells out to an engine and takes in what came of them."""

    def __init__(self, runs: Sequence[RunConfig], folder: SweepFolder, engine: Engine, show: Update) -> None:
        self.runs, self.folder, self.engine, self.show = runs, folder, engine, show
        self.n_ended = len(runs)

    def train(self, missing: Sequence[RunConfig]) -> None:
        """Train until every cell is finished or failed."""
        n_breaks = 0
        while missing:
            self._report()
            n_before = len(missing)
            try:
                with self.engine.executor(missing, self.folder.unfinished("").resolve()) as executor:
                    self._give_out(executor, missing)
            except (BrokenExecutor, CancelledError) as error:
                left = _missing(missing, self.folder)
                n_breaks = 1 if len(left) < n_before else n_breaks + 1
                if n_breaks > BREAKS:
                    raise EngineError(
                        f"the engine {self.engine.name!r} broke {n_breaks} times in a row ({error}); what is "
                        "finished is kept, the same command continues"
                    ) from error
                time.sleep(PAUSE_SECONDS)
            missing = _missing(missing, self.folder)
        self._report()

    def _give_out(self, executor: Executor, missing: Sequence[RunConfig]) -> None:
        waiting = deque(self._jobs(executor, missing))
        under_way: dict[Future[list[Failure]], Job] = {}
        while waiting or under_way:
            while waiting and (self.engine.window() or len(under_way) + 1) > len(under_way):
                job = waiting.popleft()
                under_way[executor.submit(work, job, self.folder.out.resolve())] = job
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                waiting.extend(self._take_in(future, under_way.pop(future)))
            self._report()

    def _take_in(self, future: Future[list[Failure]], job: Job) -> list[Job]:
        """Record what came of a job; what to submit again."""
        try:
            failures = future.result()
        except OSError:
            raise
        except (BrokenExecutor, CancelledError):
            raise
        except Exception as error:
            if not self.engine.killed(error):
                raise
            if len(job) > 1:  # one of them is at fault
                return [[run] for run in job]
            failures = [Failure(cell_id(job[0]), "every process that trained it was killed", str(error))]
        for failure in failures:
            self.folder.fail(*failure)
        return []

    def _jobs(self, executor: Executor, missing: Sequence[RunConfig]) -> list[Job]:
        """Cells in stacks of equal shape, as large as the engine's processes take."""
        groups: dict[object, Job] = {}
        for run in missing:
            groups.setdefault(loop_key(run), []).append(run)
        jobs = []
        for group in groups.values():
            size = 1 if len(group) == 1 else executor.submit(cells_at_once, group[0], len(group)).result()
            jobs += [group[start : start + size] for start in range(0, len(group), size)]
        return jobs

    def _report(self) -> None:
        left = _missing(self.runs, self.folder)
        steps = sum(run.train.total_steps for run in self.runs) - sum(run.train.total_steps for run in left)
        self.show(steps, f"{len(self.runs) - len(left)} of {len(self.runs)} cells")
