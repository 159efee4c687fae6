"""Jobs: which runs are trained together, and the processes that train them."""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from anchorlens.models.devices import choose_device
from anchorlens.runs.run_config import RunConfig
from anchorlens.training.child_processes import process_pool
from anchorlens.training.loop import loop_key
from anchorlens.training.plan import members_at_once, processes
from anchorlens.training.progress import progress_bar

Job = TypeVar("Job")


class InThisProcess(Executor):
    """Runs what is submitted, one after another, here."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it now; the future is done when this returns."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def trained_together(run: RunConfig, n_runs: int) -> int:
    """How many of `n_runs` runs like this one a process gets at a time: on CUDA what fits, on the CPU one."""
    return members_at_once(run, n_runs) if choose_device(run.train_config.device).type == "cuda" else 1


def grouped(
    runs: Sequence[RunConfig], at_once: Callable[[RunConfig, int], int] = trained_together
) -> list[list[int]]:
    """The places of runs that one loop can train, in groups of at most `at_once(one of them, how many)`."""
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
) -> None:
    """Have jobs done, and take in each when it has ended, at a cost that does not grow with their number.

    Args:
        jobs: in the order in which they are given out.
        submit: gives one out.
        collect: is handed an ended job and its future; what it returns is given out in its turn.
        at_a_time: jobs that are out at the same time; None for all, where the executor has a queue.
    """
    waiting, n_out = deque(jobs), 0
    ended: queue.SimpleQueue[tuple[Job, Future[Any]]] = queue.SimpleQueue()
    while waiting or n_out:
        while waiting and (at_a_time is None or n_out < at_a_time):
            job = waiting.popleft()
            submit(job).add_done_callback(lambda future, job=job: ended.put((job, future)))
            n_out += 1
        job, future = ended.get()
        n_out -= 1
        waiting.extend(collect(job, future))


def train_in_jobs(
    train: Callable[..., Iterable[Any]],
    runs: Sequence[RunConfig],
    *columns: Sequence[Any],
    workers: int | None,
    progress: bool | None,
    advice: str = "",
) -> list[Any]:
    """Train runs, those together that can be, in this process or in several at a time.

    Args:
        train: a function of a module. It gets the runs of a job, what `columns` hold of each, and in this
            process `show`, to be called with the updates made in this job and a text; it returns what came
            of each run.
        runs: checked ones.
        columns: more arguments, one for each run.
        workers: processes on the CPU; None for one per core.
        progress: as for `progress_bar`.
        advice: as for `process_pool`, whose errors this raises beside those of `train`.

    Returns:
        What came of each run, in order.
    """
    n_processes = processes(runs, workers)
    here = n_processes == 1
    results: dict[int, Any] = {}
    done = 0
    total = sum(run.train_config.total_steps for run in runs)
    pool = contextlib.nullcontext(InThisProcess()) if here else process_pool(n_processes, advice)
    with progress_bar(total, enabled=progress) as show, pool as executor:

        def submit(job: list[int]) -> Future[Any]:
            arguments = [[column[place] for place in job] for column in (runs, *columns)]
            if not here:
                return executor.submit(train, *arguments)
            return executor.submit(train, *arguments, show=lambda steps, text: show(done + steps, text))

        def collect(job: list[int], future: Future[Any]) -> Iterable[list[int]]:
            nonlocal done
            results.update(zip(job, future.result(), strict=True))
            done += sum(runs[place].train_config.total_steps for place in job)
            if not here:
                show(done, f"{len(results)} of {len(runs)} models")
            return ()

        submit_all(grouped(runs), submit, collect, at_a_time=1 if here else None)
    return [results[place] for place in range(len(runs))]
