"""Where cells are trained: in this process, on all of this machine, or on a cluster.

Each engine is a `concurrent.futures.Executor`. All but `serial` are Dask distributed's (the extra
`[cluster]`), which gives a killed worker's cells to another one. A Dask scheduler runs what it is sent:
whoever can reach one can run code there, so `local` listens on the loopback interface alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from anchorlens.configuration import check_number
from anchorlens.presets import RunConfig
from anchorlens.training.plan import processes

ADDRESSES = ("tcp://", "tls://", "ucx://")
DEATHS = 3
"""A cell whose worker was killed more often than this is at fault itself; a scheduler that we did not
start has its own number, `allowed-failures`, which is 3 too unless it was set."""
SETTINGS = {
    "distributed.scheduler.allowed-failures": DEATHS,
    "distributed.scheduler.worker-saturation": 1.0,  # a worker has one cell, not the next one too
}
"""Of schedulers that we start."""
CONNECT_SECONDS = 60
"""How long a scheduler is waited for."""


class EngineError(RuntimeError):
    """The engine does not start, or broke again and again; what is finished is kept."""


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


class Engine:
    """Opens executors, again where one broke."""

    def __init__(self, name: str | None, workers: int | None = None) -> None:
        """Choose an engine.

        Args:
            name: `serial`: this process, without an extra dependency. `local`: one process for each core or
                GPU of this machine. `slurm`: jobs of a Slurm cluster through dask-jobqueue, as its own
                configuration file describes them. `tcp://HOST:PORT`, `tls://...` or the path of a scheduler
                file: a Dask cluster that is running, which must see the sweep's folder under the same path.
                None: `local` where Dask is installed, else `serial`.
            workers: processes of `local`, jobs of `slurm`; None for one per core or GPU.

        Raises:
            ValueError: no such engine, Dask is not installed, or `workers` where they are not ours to start.
        """
        if name is None:
            name = "local" if _has("distributed") else "serial"
        if workers is not None:
            check_number("workers", workers, minimum=1, integer=True)
        self.name, self.workers = name, workers
        self._address = name.startswith(ADDRESSES)
        if name not in ("serial", "local", "slurm") and not self._address and not Path(name).is_file():
            raise ValueError(
                f"engine must be serial, local, slurm, an address such as tcp://host:8786 or the path of a "
                f"scheduler file, got {name!r}"
            )
        if name != "serial" and not _has("distributed"):
            raise ValueError(
                f"the engine {name!r} needs Dask: pip install 'anchorlens[cluster]'; 'serial' needs nothing"
            )
        if name == "slurm" and (not _has("dask_jobqueue") or workers is None):
            raise ValueError("the engine 'slurm' needs dask-jobqueue and the number of workers (--workers 8)")
        if workers is not None and name not in ("local", "slurm"):
            raise ValueError(f"the engine {name!r} starts no workers; leave workers out")

    def executor(self, runs: Sequence[RunConfig]) -> AbstractContextManager[Executor]:
        """An executor for these cells, open within the context; what is under way at its end is given up.

        Raises:
            BrokenExecutor: nobody answers at the address.
            EngineError: the processes of `local` do not start.
        """
        if self.name == "serial":
            return InThisProcess()
        return self._dask(runs)

    def window(self) -> int | None:
        """How many jobs to have submitted at a time; None for all."""
        return 1 if self.name == "serial" else None

    def killed(self, error: BaseException) -> bool:
        """Whether a job ended because the processes that had it were killed, again and again."""
        return type(error).__name__ == "KilledWorker"

    @contextlib.contextmanager
    def _dask(self, runs: Sequence[RunConfig]) -> Iterator[Executor]:
        from dask import config
        from distributed import Client

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with contextlib.ExitStack() as opened:
            opened.enter_context(config.set(SETTINGS))
            try:
                where = self._cluster(runs, opened)
                client = opened.enter_context(Client(timeout=CONNECT_SECONDS, set_as_default=False, **where))
            except (OSError, TimeoutError) as error:
                raise BrokenExecutor(f"no Dask scheduler answers at {self.name}: {error}") from error
            executor = client.get_executor(pure=False)
            opened.callback(executor.shutdown, wait=False)
            yield executor

    def _cluster(self, runs: Sequence[RunConfig], opened: contextlib.ExitStack) -> dict[str, Any]:
        """Where the client connects to; clusters of our own are started, and end with the context."""
        if self._address:
            return {"address": self.name}
        if self.name == "slurm":
            from dask_jobqueue.slurm import SLURMCluster

            jobs: Any = opened.enter_context(SLURMCluster(scheduler_options={"dashboard_address": ":0"}))
            jobs.scale(self.workers)
            return {"address": jobs}
        if self.name != "local":
            return {"scheduler_file": self.name}
        from distributed import LocalCluster

        n_gpus = torch.cuda.device_count() if any(run.train.device != "cpu" for run in runs) else 0
        try:
            cluster: Any = opened.enter_context(
                LocalCluster(
                    n_workers=self.workers or n_gpus or processes(runs, None),
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                )
            )
        except RuntimeError as error:
            raise EngineError(
                f"the processes of the engine 'local' did not start ({error}). They import the script that "
                "called: put the call under `if __name__ == '__main__':`, or take the engine 'serial'"
            ) from error
        if n_gpus > 1:
            from anchorlens.sweep.one_gpu import OneGPU

            cluster.get_client().register_plugin(OneGPU(n_gpus))
        return {"address": cluster}


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
