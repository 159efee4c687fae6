"""Training processes report progress in files, which the process that started them reads as they grow.

A job appends a line to a file of its own. An error of `on_log` stops all jobs. With `on_log`, a job therefore
waits after each line for an answer: a file `.go` next to its own file, or the file `stop`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from anchorlens.training.progress import Lines

LOOK_SECONDS, WAIT_SECONDS = 0.005, 0.001
"""Seconds between two looks at the files, and between two looks for an answer."""

Results = TypeVar("Results")


class TrainingStopped(RuntimeError):  # noqa: N818 - no fault of the process that raises it
    """The parent process has stopped all jobs."""


class Reports:
    """The folder in which training processes report their progress to the parent process."""

    def __init__(self, folder: Path) -> None:
        """Begin with no reports; the folder is empty."""
        self._folder = folder
        self._n_read: dict[str, int] = {}

    def path(self, job: list[int]) -> Path:
        """Return the path of a job's file."""
        return self._folder / f"{job[0]}.jsonl"

    def take_in(self, tell: Callable[[list[int], int, str, Lines], object]) -> None:
        """Call `tell` with the job, updates, text and log lines of each new report, and answer the report."""
        for entry in list(os.scandir(self._folder)):
            before = self._n_read.get(entry.name, 0)
            if not entry.name.endswith(".jsonl") or entry.stat().st_size == before:
                continue
            with open(entry.path, "rb") as file:
                file.seek(before)
                for line in file:
                    if line.endswith(b"\n"):
                        self._n_read[entry.name] = self._n_read.get(entry.name, 0) + len(line)
                        tell(*json.loads(line))
                        Path(entry.path).with_suffix(".go").touch()

    def stop(self) -> None:
        """Stop every job at its next report."""
        (self._folder / "stop").touch()


def training_there(
    train: Callable[..., Results], path: Path, job: list[int], answered: bool, *arguments: Any
) -> Results:
    """Train in this process, and report the progress in a file.

    Args:
        train: the function that trains the runs. Its arguments are `arguments` and `show`.
        path: the path of the job's file.
        job: the indices of the runs in the job.
        answered: whether to report log lines too, and to wait until the parent process has read each report.
        *arguments: the arguments of `train`.

    Raises:
        TrainingStopped: If the parent process has stopped all jobs.
    """
    go, stop = path.with_suffix(".go"), path.with_name("stop")
    with path.open("w", encoding="utf-8") as file:

        def show(steps: int, text: str, lines: Lines = ()) -> None:
            print(json.dumps([job, steps, "", lines if answered else ()]), file=file, flush=True)
            while answered and not (go.exists() or stop.exists()):
                time.sleep(WAIT_SECONDS)
            if stop.exists():
                raise TrainingStopped("all jobs were stopped")
            go.unlink(missing_ok=True)

        return train(*arguments, show=show)
