"""The folder of one run: configuration, log, checkpoints, and the state that a killed run resumes from.

| file                       | what                                                               |
|----------------------------|--------------------------------------------------------------------|
| config.json                | task, model and train configuration, library versions              |
| log.jsonl                  | one JSON object a line: loss, learning rate, norms, accuracies     |
| checkpoints/step_N.pt      | checkpoints along the run                                          |
| ckpt.pt                    | the last weights; written when the run has ended                   |
| state.pt                   | weights and optimizer moments of a run that has not ended          |

Every file but the log is written atomically; on resuming, the log is cut back to the step of the state.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import filelock
from pydantic_core import from_json
from torch import Tensor

from anchorlens import safe
from anchorlens.configuration import check_number
from anchorlens.files import container
from anchorlens.files.checkpoint import Checkpoint, library_versions, load_checkpoint, save_checkpoint
from anchorlens.files.loaded_model import Trajectory
from anchorlens.files.writing import atomic_write, naming, write_whole
from anchorlens.recipes.run_config import PARTS, RunConfig, execution_fields, identity, places
from anchorlens.tasks.shared.measures import Metric
from anchorlens.texts import LONGEST, safe_repr

STATE_FORMAT = "anchorlens training state"
STATE_VERSION = 1
ENDED = ("finished", "stopped early", "diverged")
"""How a run can end."""
_LARGEST_LOG = 256 * 2**20
LONGEST_LINE, _MOST_LINES = 2**16, 500_000
_TOO_LARGE = 10**safe.MOST_DIGITS
_MOST_SECONDS = 10**9
"""Longest time that a log can tell: 30 years."""


class RunFolder:
    """The folder of one run. The folder stays locked until `close`."""

    def __init__(self, path: str | os.PathLike[str], run: RunConfig, *, resume: bool) -> None:
        """Open the folder for `run`.

        Raises:
            ValueError: If the folder contains another run, or contains this run and `resume` is False.
            OSError: If the folder cannot be written.
        """
        self.path, self._run = Path(path), run
        self._log: TextIO | None = None
        self._check_new(resume)
        in_use = "in use by another run. Wait for its end, or choose another folder"
        self._lock = claim(self.path, "config.json", what="run", in_use=in_use)
        try:
            self._check_new(resume)  # again: another process may have begun a run in the meantime
            self._identity = identity(run)
            stored = stored_run(self.path)
            if stored is not None:
                _check_same(stored, run)
            if has_ended(self.path):  # the run may have been killed before `save_final` removed the state
                (self.path / "state.pt").unlink(missing_ok=True)
            for leftover in [*self.path.glob(".*.tmp"), *(self.path / "checkpoints").glob(".*.tmp")]:
                leftover.unlink()
        except BaseException:
            self.close()
            raise

    def _check_new(self, resume: bool) -> None:
        if not resume and (self.path / "config.json").exists():
            raise ValueError(
                f"the folder {self.path} must not contain a run, got the config.json of a run. Continue the "
                "run with resume (--resume), or choose another folder"
            )

    def begin(self) -> None:
        """Write the run's configuration, unless the folder already contains it."""
        if not (self.path / "config.json").exists():
            config = {"format": "anchorlens run", "format_version": 1, **self._run.to_dict()}
            text = json.dumps({**config, "versions": library_versions()}, indent=1)
            write_whole(self.path / "config.json", text.encode())

    def save_trajectory(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint of the run's trajectory."""
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        save_checkpoint(folder / f"step_{checkpoint.step:08d}.pt", checkpoint)

    def save_final(self, checkpoint: Checkpoint) -> Path:
        """Write the last checkpoint, which marks the end of the run, and remove the state for resuming."""
        path = self.path / "ckpt.pt"
        save_checkpoint(path, checkpoint)
        (self.path / "state.pt").unlink(missing_ok=True)
        return path

    def save_state(self, step: int, threads: int, tensors: Mapping[str, Tensor]) -> None:
        """Write the state from which the run can resume."""
        header = {"format": STATE_FORMAT, "format_version": STATE_VERSION, "run": self._identity}
        header |= {"step": step, "threads": threads}
        container.write(self.path / "state.pt", header, tensors)

    def load_state(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Load the last state that `save_state` wrote, or return None if no state was saved.

        Raises:
            CheckpointError: If the file is damaged, has the wrong format, or contains the state of another
                run.
        """
        path = self.path / "state.pt"
        if not path.exists():
            return None
        header, tensors = container.read(path)
        container.check_format(path, header, STATE_FORMAT, STATE_VERSION)
        if header.get("run") != self._identity:
            raise safe.CheckpointError(
                path,
                "the state must belong to this run, got the state of another run. Remove the file to "
                "start again",
            )
        with safe.reading(path, "is not the state of a run"):
            last = self._run.train_config.total_steps - 1
            check_number("step", header.get("step"), minimum=0, maximum=last, integer=True)
            check_number("threads", header.get("threads"), minimum=1, maximum=1024, integer=True)
        return header, tensors

    def load_final(self) -> tuple[Checkpoint, Any]:
        """Load the last checkpoint of a run that has ended, and the status of the run.

        Raises:
            CheckpointError: If the file is damaged, has the wrong format, or belongs to another run.
        """
        path = self.path / "ckpt.pt"
        checkpoint = load_checkpoint(path, any_cost=True)  # another run's checkpoint is refused below
        status = checkpoint.metrics.get("status")
        train = checkpoint.train_config
        is_own = train is not None and self._identity == identity(
            RunConfig(checkpoint.task, checkpoint.model_config, train)
        )
        if not is_own or status not in ENDED:
            raise safe.CheckpointError(
                path,
                "the file must be the last checkpoint of this run, got another checkpoint. Remove the "
                "file to train the run to its end again",
            )
        return checkpoint, status

    def open_log(self, step: int) -> list[dict[str, Any]]:
        """Remove the log's lines after `step`, open the log for appending, and return the remaining lines.

        If the log is damaged before its last line, the method keeps the log under another name and warns.
        """
        path = self.path / "log.jsonl"
        lines, note = readable_log(path)
        if note is not None:
            names = (self.path / f"log.damaged-{n}.jsonl" for n in itertools.count(1))
            old = next(name for name in names if not name.exists())
            with safe.ordinary_file(path) as (file, _), atomic_write(old) as copy:
                shutil.copyfileobj(file, copy)
            warnings.warn(
                f"line {len(lines) + 1} of {path} is damaged; the log continues from the line before, and "
                f"the complete original is in {old}",
                stacklevel=7,
            )
        kept = [line for line in lines if line["step"] <= step]
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._log = path.open("a", encoding="utf-8")
        return kept

    def write_log(self, line: Mapping[str, Any]) -> None:
        """Append a line to the log, and flush the line to the operating system."""
        assert self._log is not None
        with naming(self.path / "log.jsonl"):
            self._log.write(json.dumps(line, allow_nan=False) + "\n")
            self._log.flush()

    def close(self) -> None:
        """Close the log and release the folder."""
        try:
            if self._log is not None:
                with naming(self.path / "log.jsonl"):  # closing may still write a line
                    self._log.close()
        finally:
            self._lock.release()


def trajectory_of(path: Path, *, with_last: bool = False) -> Trajectory:
    """Return the checkpoints along the run in a folder, which are read on demand.

    Args:
        path: the folder of the run.
        with_last: whether to include the last checkpoint of a run that has ended.

    Raises:
        CheckpointError: If a link leads out of the folder, or the last checkpoint cannot be read.
    """
    entries: dict[int, Callable[[], Checkpoint]] = {}
    with safe.reading(path):
        safe.check_inside(path, path / "checkpoints")
        safe.check_inside(path, path / "ckpt.pt")
        for file in (path / "checkpoints").glob("step_*.pt"):
            safe.check_inside(path, file)
            if (step := file.stem.removeprefix("step_")).isdecimal():
                entries[int(step)] = partial(load_checkpoint, file)
    if with_last and has_ended(path):
        last = load_checkpoint(path / "ckpt.pt")
        entries[last.step or 0] = lambda: last
    return Trajectory(entries)


def has_ended(path: Path) -> bool:
    """Check whether the run in a folder has ended."""
    return (path / "ckpt.pt").exists()


def claim(path: Path, own: str, *, what: str, in_use: str) -> filelock.FileLock:
    """Lock a folder, and make the folder if it does not exist.

    A folder that contains files must contain the file `own`, which marks folders of anchorlens.

    Raises:
        ValueError: If `path` is a file, is a folder with other files, or is locked. The messages contain
            `what` and `in_use`.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"out must be the path of a folder, got the file {path}. Choose another name")
    path.mkdir(parents=True, exist_ok=True)
    foreign = [file.name for file in path.iterdir() if not file.name.startswith(".")]
    if foreign and own not in foreign:
        raise ValueError(
            f"{path} must be a new or empty folder, got a folder with {safe_repr(foreign[0])} and no {what}. "
            "Choose another folder"
        )
    lock = filelock.FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f"{path} is {in_use}") from None
    return lock


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the lines of a run's log, oldest first, or return an empty list if the folder has no log.

    The function stops at the first damaged line, for example a line that was cut off. An undamaged line is a
    JSON object of a step and numbers.

    Raises:
        CheckpointError: If the log is not an ordinary file, or cannot be read.
        CheckpointError: If the log is larger than 256 MiB, or has more than 500,000 lines.
    """
    return readable_log(Path(path))[0]


def readable_log(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return what `read_log` returns, and a note if more than the last line of the log is damaged.

    Raises:
        CheckpointError: As for `read_log`.
    """
    lines: list[dict[str, Any]] = []
    with safe.reading(path):
        safe.check_inside(path.parent, path)
    if not path.exists():
        return lines, None
    with safe.reading(path), safe.ordinary_file(path) as (file, size):
        if size > _LARGEST_LOG:
            raise ValueError(f"the log must have at most {_LARGEST_LOG:,} bytes, got {size:,}. Shorten it")
        while text := file.readline(LONGEST_LINE):
            line = log_line(text)
            if line is None:
                note = f"line {len(lines) + 1:,} of {path.name} is damaged, and the log is read up to there"
                return lines, note if text.endswith(b"\n") or file.read(1) else None
            if len(lines) == _MOST_LINES:
                raise ValueError(f"the log must have at most {_MOST_LINES:,} lines, got more. Shorten it")
            lines.append(line)
    return lines, None


def log_line(text: bytes) -> dict[str, Any] | None:
    """Parse a line of a log; return None if a value is neither a finite number nor None."""
    try:
        line = from_json(text)
    except ValueError:
        return None
    step = line.get("step") if isinstance(line, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        return None
    for name, value in line.items():
        too_large = math.inf if isinstance(value, float) else _TOO_LARGE
        is_number = value is None or (isinstance(value, int | float) and abs(value) < too_large)
        if not is_number or len(name) > LONGEST:
            return None
    if "seconds" in line:
        line["seconds"] = plausible_seconds(line["seconds"])
    return line


def plausible_seconds(value: object) -> float | None:
    """Return a stored time in seconds, or None if the value is not a number from 0 to 10**9."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= _MOST_SECONDS else None


def stored_run(path: str | os.PathLike[str]) -> RunConfig | None:
    """Return the configuration of the run in a folder, or None if the folder has no config.json.

    Raises:
        CheckpointError: If config.json is not a valid configuration.
    """
    path = Path(path) / "config.json"
    if not path.exists():
        return None
    with safe.reading(path, "is not the configuration of a run"):
        values = safe.read_json(safe.read_bytes(path))
        container.check_format(path, values, "anchorlens run", 1)
        return RunConfig.from_dict({part: values[part] for part in PARTS})


def _check_same(stored: RunConfig, run: RunConfig) -> None:
    """Check that a resumed run keeps its configuration, but for device, file paths and what it records."""
    free = {"train": execution_fields(run.train_config), "task": places(run.task)}
    before = stored.to_dict()
    for part, fields in run.to_dict().items():
        for name, value in fields.items():
            was = before[part][name]
            if value != was and name not in free.get(part, ()):
                raise ValueError(
                    f"{part}.{name} of a resumed run must stay {safe_repr(was)}, got {safe_repr(value)}. "
                    "Omit the change, or start a new run in another folder"
                )


def evaluations(log: Iterable[Mapping[str, Any]], metrics: Iterable[Metric]) -> list[Mapping[str, Any]]:
    """Return the log lines that contain metrics of a task."""
    names = {metric.logged_as for metric in metrics}
    return [line for line in log if not names.isdisjoint(line)]
