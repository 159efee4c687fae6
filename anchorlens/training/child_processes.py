"""Processes beside this one, which import nothing from the current folder.

Such processes are started as `python -c ...` or `python -m ...`, and Python then looks for modules in the
current folder first, which may hold data that somebody else has sent. With `PYTHONSAFEPATH` in its
environment it does not. The modules beside a script stay importable: a process is told the module path of the
one that started it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor

SAFE_PATH = "PYTHONSAFEPATH"
"""Python's own variable: whatever it holds, the current folder is not searched for modules."""

_lock = threading.Lock()
_before: dict[str, str | None] = {}
_n_inside = 0


@contextlib.contextmanager
def safe_children(*restored: str) -> Iterator[None]:
    """Processes that start within import nothing from the current folder.

    Python takes this from the environment, which is as it was when the last of such contexts ends.

    Args:
        restored: other variables that change within, and are to be as they were at the end.

    Raises:
        ValueError: this Python was started to pass on no environment (`python -E`).
    """
    global _n_inside
    if sys.flags.ignore_environment and not sys.flags.safe_path:
        raise ValueError(
            "python -E starts processes that would import from the current folder; say python -E -P or "
            "python -I, or workers=1"
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
    """Processes with one OpenMP thread each, which import the functions that they are sent.

    They end with the context, and within a second after this process, however that ends.

    Args:
        n_processes: so many at a time.
        advice: what to say beside the error about a killed process.

    Raises:
        RuntimeError: a process was killed.
        ValueError: see `safe_children`.
    """
    from loky import ProcessPoolExecutor
    from loky.process_executor import TerminatedWorkerError

    with safe_children():
        # OpenMP threads that wait for work would take the cores from the other processes
        executor = ProcessPoolExecutor(
            n_processes, env={"OMP_NUM_THREADS": "1"}, initializer=end_with_parent, initargs=(os.getpid(),)
        )
        try:
            yield executor
        except TerminatedWorkerError as error:
            raise RuntimeError(
                f"a worker process was killed (by hand, or for want of memory: try fewer workers){advice}"
            ) from error
        finally:
            _replace_killed_tracker()
            executor.shutdown(kill_workers=True)


def _replace_killed_tracker() -> None:
    """Start loky's process that looks after semaphores anew, if it was killed, without an stderr.

    It would print a traceback for each semaphore that it does not know; they are removed all the same.
    """
    from loky.backend import resource_tracker

    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "resource_tracker: process died", UserWarning)
        try:
            kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except OSError:  # it is closed: nothing is printed
            return
        stack.callback(os.close, kept)
        stack.callback(os.close, null)
        os.dup2(null, 2)  # which it inherits
        stack.callback(os.dup2, kept, 2)
        resource_tracker.ensure_running()


def end_with_parent(parent: int) -> None:
    """Have this process end within a second after the one that started it, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
