"""Engines on which the cells of a sweep are trained: this process, all of this machine, or a cluster.

Each engine is a `concurrent.futures.Executor`. All engines but `serial` use Dask distributed (the extra
`[cluster]`), which reassigns the cells of a killed worker. A Dask scheduler executes all code that it
receives, with the rights of the user who started it. So the schedulers that we start accept only clients
with the certificate of this run (`anchorlens.extras.sweep.clusters`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from pathlib import Path
from typing import Any, cast

from anchorlens.configuration import check_number
from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.recipes import RunConfig
from anchorlens.safe import read_bytes, read_json
from anchorlens.training import MOST_WORKERS, TrainingError

ADDRESSES = ("tcp://", "tls://", "ucx://")
_DASK = ("distributed", "cryptography")
PACKAGES = {"serial": (), "local": _DASK, "slurm": (*_DASK, "dask_jobqueue")}
"""The packages that each engine with a name needs."""
CONNECT_SECONDS = 4
"""The number of seconds to wait for a scheduler that we did not start."""


class EngineError(TrainingError):
    """An engine did not start, or failed several times in a row.

    Finished runs are kept.
    """


class SweepEngine:
    """A factory of executors that train the runs of a sweep."""

    def __init__(self, name: str | None, workers: int | None = None) -> None:
        """Choose an engine.

        A running cluster with certificates uses the certificates of Dask's configuration
        (`distributed.comm.tls`). `slurm` uses them too, or makes a certificate for each run if Dask's
        configuration has no certificates. `local` always makes a certificate.

        Args:
            name: an engine. `serial`: this process, without an extra dependency. `local`: one process for
                each core or GPU of this machine. `slurm`: jobs of a Slurm cluster through dask-jobqueue,
                described by its configuration file. `tcp://HOST:PORT`, `tls://...` or the path of a
                scheduler file: a running Dask cluster, which must see the sweep's folder under the same path.
                Default: `local` if the extra `[cluster]` is installed, else `serial`.
            workers: the number of processes of `local` or jobs of `slurm`. Default: one per core or GPU.

        Raises:
            ValueError: If the engine is unknown, Dask is not installed, `workers` is given for an engine
                without workers, or TLS files of Dask's configuration are missing or unusable.
        """
        if name is None:
            name = "local" if _has("distributed", "cryptography") else "serial"
        check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True, optional=True)
        self.name = name
        self.workers = workers
        self.n_processes = 1
        """The number of processes that share the cells, >= 1; for a running cluster, when it was opened."""
        self._has_answered = False
        self._address = name.startswith(ADDRESSES)
        if name not in PACKAGES and not self._address and not Path(name).is_file():
            raise ValueError(
                "engine must be serial, local, slurm, an address such as tcp://host:8786, or the path of a "
                f"scheduler file, got {name!r}. Correct the engine."
            )
        needed = PACKAGES.get(name, ("distributed",))
        if not _has(*needed):
            raise ValueError(
                f"the packages {' and '.join(needed)} must be installed for the engine {name!r}, got a "
                "missing package. Run pip install '.[cluster]' in a clone, or use the engine 'serial'."
            )
        if name != "local" and (workers is not None) != (name == "slurm"):
            raise ValueError(
                "the number of workers must be given for the engine slurm, and is possible for local, got "
                f"{workers!r} for {name!r}. Correct the number of workers."
            )
        if name not in PACKAGES:
            from anchorlens.extras.sweep.clusters import check_encryption

            check_encryption(self._scheduler())

    def _scheduler(self) -> str:
        return self.name if self._address else _address_in(self.name)

    @contextlib.contextmanager
    def executor(self, runs: Sequence[RunConfig], folder: Path) -> Iterator[Executor]:
        """Open an executor for these runs, and drop unfinished runs when the `with` block ends.

        Args:
            runs: the runs to train.
            folder: the folder of unfinished runs. This folder also contains the certificate for jobs of
                `slurm`.

        Raises:
            BrokenExecutor: If the scheduler at the address does not respond any more.
            EngineError: If no scheduler responds at the address at first, or the processes of `local` do not
                start.
        """
        if self.name == "serial":
            with InThisProcess() as executor:
                yield executor
            return
        from distributed import Client

        from anchorlens.extras.sweep import clusters

        for name in ("distributed", "distributed.client"):  # Dask sets the level of both
            logging.getLogger(name).setLevel(logging.CRITICAL)
        where: dict[str, Any] = {"address" if self._address else "scheduler_file": self.name}
        with contextlib.ExitStack() as opened:
            try:
                if self.name == "local":
                    where = {"address": opened.enter_context(clusters.local(runs, self.workers))}
                elif self.name == "slurm":
                    where = {"address": opened.enter_context(clusters.slurm(self.workers, folder))}
                elif not self._has_answered:
                    clusters.check_answer(self._scheduler(), CONNECT_SECONDS)
                seconds = 60 if self.name in PACKAGES else CONNECT_SECONDS
                client = opened.enter_context(Client(timeout=seconds, set_as_default=False, **where))
                there = cast("dict[str, int]", client.nthreads())
            except (OSError, TimeoutError) as error:
                to_try_again = self._has_answered or self.name in PACKAGES
                raise (BrokenExecutor if to_try_again else EngineError)(
                    f"a Dask scheduler must answer at {self.name}, got an error: {error}. Check the scheduler"
                ) from error
            except clusters.NotStarted as error:
                raise EngineError(str(error)) from error
            self._has_answered = True
            if self.name == "local":
                opened.push(clusters.killing_workers(where["address"]))
            self.n_processes = self.workers or max(1, len(there))
            executor = client.get_executor(pure=False)
            opened.callback(executor.shutdown, wait=False)
            yield executor


def _address_in(path: str) -> str:
    """Return the address in a scheduler file."""
    try:
        return str(read_json(read_bytes(path))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} must be a scheduler file in JSON with the field `address`, got a file without a "
            "readable address. Name another file."
        ) from None


def _has(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)
