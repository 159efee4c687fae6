"""Dask clusters that a sweep starts itself: on this machine, or as Slurm jobs.

A Dask scheduler or worker executes all code that it receives, and its sockets are open to every user of
the machine. So all these connections use TLS with a certificate for the run, which both sides must present.
Dask's web pages are off, and its scratch folder, which Dask puts on the module path, is private to this
user.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from dask import config
from distributed import LocalCluster, Security, Worker, WorkerPlugin, rpc

from anchorlens.extras.shared.scratch import scratch_folder
from anchorlens.recipes import RunConfig
from anchorlens.training import processes, safe_children

if TYPE_CHECKING:
    from dask_jobqueue.slurm import SLURMCluster

DEATHS = 3
"""The number of kills of its worker after which a cell fails. A scheduler that we did not start uses the
Dask setting `allowed-failures`, whose default is also 3."""
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": DEATHS,
    "distributed.scheduler.worker-saturation": 1.0,  # a worker gets no second cell in advance
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""The Dask settings for schedulers that we start."""
NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""The settings with which Dask serves no web page, although it always opens the port."""
JOB_PROLOGUE = [
    "export PYTHONSAFEPATH=1",
    "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]'",
    'export DASK_TEMPORARY_DIRECTORY="$(mktemp -d)"',
    "trap 'rm -rf \"$DASK_TEMPORARY_DIRECTORY\"' EXIT",
]
"""The lines of a Slurm job script that protect its workers like the workers on this machine."""


class NotStarted(Exception):
    """The processes of a cluster did not start. The message gives the reason."""


@contextlib.contextmanager
def local(runs: Sequence[RunConfig], workers: int | None) -> Iterator[LocalCluster]:
    """Start a Dask cluster with one process for each core or GPU of this machine.

    Args:
        runs: the runs to train.
        workers: the number of processes. Default: one for each core or GPU.

    Raises:
        NotStarted: If a process ends before it is ready.
    """
    n_gpus, one_each = gpus_for(runs)
    with _guarded(), contextlib.ExitStack() as opened:
        try:
            cluster = LocalCluster(
                n_workers=workers or n_gpus or processes(runs, None),
                threads_per_worker=1,
                host="127.0.0.1",
                security=Security.temporary(),
                dashboard_address=NO_PAGES["dashboard_address"],
                scheduler_kwargs=NO_PAGES,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
            opened.enter_context(cluster)
        except RuntimeError as error:
            raise NotStarted(
                f"the processes of the engine 'local' must start, got an error: {error}. If a process was "
                "killed, run the same command again to continue, or use the engine 'serial'. The processes "
                "import the calling script, so put the call under `if __name__ == '__main__':`."
            ) from error
        if one_each:
            cluster.get_client().register_plugin(OneGPU(n_gpus))
        yield cluster


def killing_workers(cluster: LocalCluster) -> Callable[..., None]:
    """Return a function for an exit stack that kills the workers of a cluster if an error ends the stack.

    A worker that trains would otherwise delay the end by many seconds. Its files are written atomically.
    """

    def at_end(error: type[BaseException] | None, *_: object) -> None:
        for nanny in list(cluster.workers.values()) if error is not None else ():
            nanny.close_gracefully()  # so that it starts no other worker
            with contextlib.suppress(ProcessLookupError, TypeError):  # it has no process any more
                os.kill(nanny.pid, signal.SIGKILL)

    return at_end


def gpus_for(runs: Sequence[RunConfig]) -> tuple[int, bool]:
    """Return how many GPUs the runs use, and whether each worker may see only one GPU.

    If the device of a run has an index, such as `cuda:1`, all workers must see all GPUs.
    """
    devices = {run.train_config.device for run in runs} - {"cpu"}
    if named := {device for device in devices if ":" in device}:
        return len(named), False
    n_gpus = torch.cuda.device_count() if devices else 0
    return n_gpus, n_gpus > 1


class OneGPU(WorkerPlugin):
    """A plugin that makes only one GPU visible to a worker."""

    name = "anchorlens-one-gpu"

    def __init__(self, n_gpus: int) -> None:
        """Distribute the workers over `n_gpus` GPUs."""
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.gpus = seen.split(",") if seen else [str(k) for k in range(n_gpus)]

    def setup(self, worker: Worker) -> None:
        """Choose this worker's GPU."""
        os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[int(worker.name) % len(self.gpus)]


@contextlib.contextmanager
def slurm(workers: int | None, folder: Path) -> Iterator[SLURMCluster]:
    """Start a Dask cluster of Slurm jobs, with the configuration file of dask-jobqueue.

    Args:
        workers: the number of jobs.
        folder: the folder for the certificate's files while the jobs run, unless
            `jobqueue.slurm.shared-temp-directory` sets another folder. Every job must see the folder. Only
            the current user can read the certificate's files. If Dask's configuration has TLS files, the
            cluster uses these TLS files.

    Raises:
        NotStarted: If the folder's name cannot be passed to a job.
    """
    from dask_jobqueue.slurm import SLURMCluster

    described: dict[str, Any] = config.get("jobqueue.slurm", {})
    shared = described.get("shared-temp-directory")
    if shared is not None:
        folder = Path(os.path.expandvars(shared)).expanduser()
    if shlex.quote(str(folder)) != str(folder):
        raise NotStarted(
            "the folder of a Slurm job must have a name without spaces or special characters, got "
            f"{folder}. Rename the folder."
        )
    prologue = described.get("job-script-prologue") or described.get("env-extra") or []
    with _guarded(), contextlib.ExitStack() as opened:
        security = Security(require_encryption=True)
        if not _has_files(security, "scheduler"):
            security = opened.enter_context(_certificate_in_files(folder))
        cluster = SLURMCluster(
            security=security,
            scheduler_options=NO_PAGES | (described.get("scheduler-options") or {}),
            job_script_prologue=[*prologue, *JOB_PROLOGUE],
        )
        opened.enter_context(cluster)
        cluster.scale(workers)
        yield cluster


@contextlib.contextmanager
def _certificate_in_files(folder: Path) -> Iterator[Security]:
    """Make a certificate for one run, in files that only this user may read and that the context removes."""
    made = Security.temporary()
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(".tls-", folder) as private:
        cert, key = private / "cert.pem", private / "key.pem"
        for path, content in ((cert, made.tls_worker_cert), (key, made.tls_worker_key)):
            path.touch(mode=0o600)
            path.write_text(content)
        roles = {}
        for role in ("client", "scheduler", "worker"):
            roles |= {f"tls_{role}_cert": str(cert), f"tls_{role}_key": str(key)}
        yield Security(require_encryption=True, tls_ca_file=str(cert), **roles)


def check_encryption(address: str) -> None:
    """Raise an error for an address if Dask's configuration lacks usable TLS files.

    Without this check, Dask would try to connect for minutes.

    Args:
        address: the address of a running scheduler.

    Raises:
        ValueError: If a TLS file is missing or unusable. The message gives the keys of Dask's configuration.
    """
    if config.get("distributed.client.security-loader", None) is not None:
        return
    security = Security()
    got = None
    if not address.startswith("tls://"):
        got = "no tls://, though require-encryption is set" if security.require_encryption else None
    elif not _has_files(security, "client"):
        got = "none"
    else:
        try:
            security.get_connection_args("client")
        except OSError as error:  # ssl.SSLError too
            got = f"an error: {error}"
    if got is not None:
        raise ValueError(
            f"the connection to {address} must use certificates, got {got}. In Dask's configuration, set "
            "distributed.comm.tls.ca-file, distributed.comm.tls.client.cert and "
            "distributed.comm.tls.client.key to PEM files."
        )


def check_answer(address: str, seconds: float) -> None:
    """Ask the scheduler at an address who it is, since Dask's client waits for other programs without end.

    Args:
        address: the address of a running scheduler.
        seconds: the number of seconds within which the scheduler must answer, above 0.

    Raises:
        OSError: If there is no answer in this time, or the answer is not one of a scheduler.
    """
    if config.get("distributed.client.security-loader", None) is not None:
        return

    async def ask() -> None:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as scheduler:
            await asyncio.wait_for(scheduler.identity(), seconds)

    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook has an event loop in this one
            thread.submit(asyncio.run, ask()).result()
    except TimeoutError:
        raise OSError(f"no answer within {seconds:g} s") from None
    except OSError:  # such as a certificate that is refused
        raise
    except Exception as error:  # such as a MemoryError, by the bytes of another protocol
        raise OSError(f"the answer of another program ({type(error).__name__})") from error


def _has_files(security: Security, role: str) -> bool:
    files = security.get_tls_config_for_role(role)
    return bool(files["ca_file"] and files["cert"])


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Keep Dask's scratch folder private, and undo at the end all changes that Dask makes in this process."""
    dask_sets = {**config.get("distributed.nanny.pre-spawn-environ", {}), "PYTHONHASHSEED": None}
    parent = config.get("temporary-directory", None)
    with safe_children(*dask_sets, "__DASK_PARENT_PID"), scratch_folder("anchorlens-", parent) as private:
        try:
            with config.set({**SETTINGS, "temporary-directory": str(private)}):
                yield
        finally:  # Dask leaves its scratch folders in the module path after it has deleted them
            sys.path[:] = [path for path in sys.path if not path.startswith(f"{private}{os.sep}")]
