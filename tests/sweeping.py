"""What the tests of sweeps share: tiny cells, the command in a process, and the processes that it starts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import forked
import psutil

from anchorlens.extras.sweep import grid

ROOT = Path(__file__).parents[1]
TINY = {
    "n_samples": 600, "batch_size": 64, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_checkpoints": 0,
    "key_max": 40,  # few keys, so that evaluating is short
}  # fmt: skip


def tiny(axes, **fields):
    """Cells that train in less than a second."""
    return grid("quick", axes, **{"steps": 20, **TINY, **fields})


def flags(axes, **fields):
    """The same cells on the command line."""
    given = {"steps": 20, **TINY, **fields, **axes}
    return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def start(*arguments, **options):
    """The command in a process group of its own."""
    command = [sys.executable, "-m", "anchorlens", *map(str, arguments)]
    return forked.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200"},
        **options,
    )


def workers_of(pid):
    """Dask's worker processes below a process: those that have loaded torch."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "spawn_main" in command:
            found.append(child)
    return found


def wait_for(condition, seconds=120, every=0.05):
    """Wait until something is the case; what it was then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise AssertionError(f"{condition} was never so within {seconds} s")


def finished(out):
    """Identity -> (inode, time of its last change) of every finished cell."""
    folder = Path(out) / "cells"
    cells = [path / "cell.json" for path in folder.iterdir()] if folder.exists() else []
    return {path.parent.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cells}
