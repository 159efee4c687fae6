"""Child processes that import nothing from the current folder.

Child processes are started as `python -c ...` or `python -m ...`, and Python then looks for modules first in
the current folder, which may hold data from somebody else. With `PYTHONSAFEPATH` in its environment it does
not. The modules next to a script stay importable, since a child process gets the module path of its parent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor

from anchorlens.models.devices import limit_freed_memory

SAFE_PATH = "PYTHONSAFEPATH"
"""Python's own variable: when it is set, the current folder is not searched for modules."""


class TrainingError(RuntimeError):
    """An outcome of training that a command reports in one line, because it is no fault of the program."""


class WorkerKilled(TrainingError):
    """A worker process was killed by hand, or because the machine was out of memory.

    The message tells the user how to continue.
    """


def sleeping_threads() -> dict[str, str]:
    """Return a dict with the variable that lets waiting OpenMP threads sleep, or {} if it is already set.

    By default, a waiting OpenMP thread counts to 300,000 at every barrier. Our models are so small that a run
    has thousands of barriers per second. If another process takes a core, the waiting threads keep counting
    until they get the core back. OpenMP reads the variable once, when torch is loaded. The variable does not
    change any result.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    return {} if chosen else {"OMP_WAIT_POLICY": "PASSIVE"}


def keep_freed_memory() -> None:
    """Let glibc keep up to 64 MiB of freed memory in this process for reuse in blocks below 32 MiB.

    By default, glibc returns freed memory to the system until the process has used large blocks. Without
    higher limits, each batch of a model causes page faults. Limits in the environment
    (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`) take precedence.
    """
    if not {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys():
        limit_freed_memory(keep_all=False)


_lock = threading.Lock()
_before: dict[str, str | None] = {}
_n_inside = 0


@contextlib.contextmanager
def safe_children(*restored: str) -> Iterator[None]:
    """Let processes that start in this context import nothing from the current folder.

    The context sets the environment variable `PYTHONSAFEPATH`. The end of the last open context restores the
    variable.

    Args:
        restored: the names of more environment variables that the context restores.

    Raises:
        ValueError: If this Python ignores environment variables (`python -E`).
    """
    global _n_inside
    if sys.flags.ignore_environment and not sys.flags.safe_path:
        raise ValueError(
            "processes must not import from the current folder, got python -E. Use python -E -P, python -I "
            "or workers=1"
        )
    with _lock:
        for name in (SAFE_PATH, *restored):
            _before.setdefault(name, os.environ.get(name))
        _n_inside += 1
        os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        with _lock:
            _n_inside -= 1
            if _n_inside == 0:
                for name, value in _before.items():
                    os.environ.pop(name, None) if value is None else os.environ.update({name: value})
                _before.clear()


@contextlib.contextmanager
def process_pool(n_processes: int, advice: str = "") -> Iterator[Executor]:
    """Open a pool of processes with one OpenMP thread each. A process imports the functions that it runs.

    The processes end when the context ends. If this process is killed, the processes of the pool end within a
    second.

    Args:
        n_processes: the number of processes.
        advice: the text added to the error about a killed process.

    Raises:
        WorkerKilled: If a process was killed.
        ValueError: If this Python ignores environment variables (`python -E`).
    """
    from loky import ProcessPoolExecutor
    from loky.process_executor import TerminatedWorkerError

    with safe_children():
        # OpenMP threads that wait for work would take the cores from the other processes
        env = {"OMP_NUM_THREADS": "1", **sleeping_threads()}
        pool = ProcessPoolExecutor(n_processes, env=env, initializer=end_with_parent, initargs=(os.getpid(),))
        try:
            yield pool
        except TerminatedWorkerError as error:
            raise WorkerKilled(
                "every worker process must run to its end, got a process that was killed, for example "
                f"because memory ran out. Use fewer workers{advice}"
            ) from error
        finally:
            pool.shutdown(kill_workers=True)


def end_with_parent(parent: int) -> None:
    """End this process within a second after its parent, even if the parent was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
