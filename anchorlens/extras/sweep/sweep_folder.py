"""The folder of a sweep: its list of runs (sweep.json), and its finished, unfinished and failed cells.

| file                | what                                                                                |
|---------------------|-------------------------------------------------------------------------------------|
| sweep.json          | the id and the configuration of every requested cell                                 |
| cells/ID/           | a finished cell: a run's folder with `cell.json`; it appears atomically             |
| unfinished/ID/      | a cell in training, with the state that it continues from                           |
| unreadable/ID-N/    | files of an unfinished cell that could not be read; the cell was started again      |
| failed/ID.json      | the error of a cell that cannot be trained                                          |
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from anchorlens.configuration import as_path
from anchorlens.extras.sweep.cells import Cell, CellContent, CellFile, Failure, SweepResult, cell_id, cell_ids
from anchorlens.files import check_format, write_whole
from anchorlens.recipes import RunConfig, same_value
from anchorlens.safe import (
    MOST_BYTES,
    MOST_VALUES,
    CheckpointError,
    check_inside,
    may_be_refused,
    read_bytes,
    read_json,
    reading,
)
from anchorlens.tasks import Task, read_stored_task
from anchorlens.texts import safe_repr, safe_text

LONGEST_ERROR, LONGEST_DETAILS = 10_000, 100_000
"""The largest number of characters stored of a failed cell's error and traceback."""
SWEEP_FORMAT = "anchorlens sweep"
CELL_FORMAT = "anchorlens cell"
FAILURE_FORMAT = "anchorlens failed cell"
VERSION = 1
_LARGEST_LIST, _MOST_VALUES = 512 * 2**20, 10_000_000
"""The largest number of bytes and values of sweep.json, for 100,000 cells."""
LARGEST_CELL, BYTES_A_NUMBER = 256 * 2**10, 64
"""The largest size of cell.json in bytes, and the additional bytes for each number in the task's table or
sequence, since cell.json lists accuracies by pair and keeps some images."""
MOST_TOGETHER = 512 * 2**20
"""The largest total size of the cells' files of a folder, in bytes, for some 15,000 cells."""
_MOST_TARGETS = 10_000_000
"""The largest number of targets, (chain, key), of all different tasks of a sweep; a target takes some 30
bytes."""

Stored = TypeVar("Stored", bound=CellFile)
NamedRun = tuple[str, RunConfig]
"""The id of a cell, which names its folder, and the run."""


class SweepFolder:
    """The reader and writer of the files of a sweep."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        """Set the folder; nothing is read or written."""
        self.out = as_path("out", out)

    @contextlib.contextmanager
    def lock(self, runs: Sequence[RunConfig]) -> Iterator[list[NamedRun]]:
        """Lock the folder, add the runs to its list, and yield each run with its id.

        Raises:
            ValueError: If the folder does not belong to a sweep, or another process trains this sweep. Two
                runs must differ in more than execution or logging.
            OSError: If the folder cannot be written.
        """
        from anchorlens.training import claim  # late, since it imports torch, which is slow

        in_use = "in use by another process. Wait for its end, or choose another folder"
        lock = claim(self.out, self.path.name, what="sweep", in_use=in_use)
        try:
            for folder in (self.out, self.out / "failed"):
                for leftover in folder.glob(".*.json.*.tmp"):  # of a killed process
                    leftover.unlink(missing_ok=True)
            listed = self.stored() if self.path.exists() else []
            named, stored = self.runs_with_ids(runs, listed), dict(listed)
            together = stored | dict(named) | stored  # in the order in which they were first asked for
            if len(together) > len(stored) or not self.path.exists():
                cells = {"ids": list(together), "cells": [run.to_dict() for run in together.values()]}
                self._write(self.path, SWEEP_FORMAT, cells)
            yield named
        finally:
            lock.release()

    @property
    def path(self) -> Path:
        """The path of sweep.json."""
        return self.out / "sweep.json"

    def cell(self, identity: str) -> Path:
        """Return the folder of a finished run."""
        return self.out / "cells" / identity

    def unfinished(self, identity: str) -> Path:
        """Return the folder of a run in training."""
        return self.out / "unfinished" / identity

    def failure(self, identity: str) -> Path:
        """Return the path of the file with the error of a failed run."""
        return self.out / "failed" / f"{identity}.json"

    def stored(self, *, without_places: bool = False) -> list[NamedRun]:
        """Return every requested run, with its id.

        Args:
            without_places: whether to omit the paths of the tasks' files (`read_stored_task`). The method
                then also refuses a sweep.json that is a link out of the folder. Use this option for the sweep
                of another person.

        Raises:
            CheckpointError: If sweep.json is missing or invalid.
        """
        if without_places:
            with reading(self.path):
                check_inside(self.out, self.path)
        with reading(self.path, f"is no {SWEEP_FORMAT}"):
            data = read_bytes(self.path, _LARGEST_LIST)
            content = _table(self.path, data, SWEEP_FORMAT, _MOST_VALUES)
        with reading(self.path, "is not a list of cells"):
            if not isinstance(content["cells"], list):
                raise ValueError(f"cells must be a list, got {safe_repr(content['cells'])}. Use another copy")
            runs = _runs(content["cells"], without_places)
            return list(zip(_checked_ids(content["ids"], len(runs)), runs, strict=True))

    def runs_with_ids(
        self, runs: Sequence[RunConfig], stored: Sequence[NamedRun] | None = None
    ) -> list[NamedRun]:
        """Return each run with its id in this folder, even if the folder does not exist yet.

        Args:
            runs: the runs of a sweep.
            stored: the result of the method `stored`. Default: the runs in sweep.json, or no runs if
                sweep.json does not exist.

        Raises:
            ValueError: If two runs differ only in execution or logging.
            CheckpointError: If sweep.json is invalid.
        """
        if stored is None:
            stored = self.stored() if self.path.exists() else []
        id_of = {cell_id(run): name for name, run in reversed(stored)}
        return [(id_of.get(name, name), run) for name, run in zip(cell_ids(runs), runs, strict=True)]

    def missing(self, cells: Iterable[NamedRun]) -> list[NamedRun]:
        """Return the unfinished runs that have not failed, without repetition."""
        return [
            (name, run)
            for name, run in dict(cells).items()
            if not (self.cell(name).exists() or self.failure(name).exists() or self._lost(name))
        ]

    def _lost(self, identity: str) -> Path | None:
        """Return a link in the path of a finished run whose target is missing, such as an unmounted disk."""
        links = (path for path in (self.cell(""), self.cell(identity)) if path.is_symlink())
        return next((path for path in links if not path.exists()), None)

    def read(self, cells: Iterable[NamedRun], *, any_size: bool = False) -> SweepResult:
        """Read the runs in their current state.

        A run with unreadable files has the status `damaged`, and an error that gives the file and the reason.
        The folder of a run, or of all runs, may be a link; a file in it may be a link only within its folder.

        Args:
            cells: the runs with their ids.
            any_size: whether to read files of any total size, and to follow links of every file. Use
                `any_size` only for your own sweep.

        Raises:
            CheckpointError: If the total size of the files is too large.
        """
        cells = list(cells)
        if not any_size:
            self._check_size(cells)
        return SweepResult(self.out, tuple(self._read_cell(name, run, any_size) for name, run in cells))

    def _check_size(self, cells: Iterable[NamedRun]) -> None:
        """Refuse files that would fill the memory, before any file is read."""
        n_bytes = 0
        for name, run in cells:
            for path in (self.cell(name) / "cell.json", self.failure(name)):
                size = self.size(path, path.parent)
                n_bytes += size if size <= LARGEST_CELL or size <= _largest_cell(run.task) else 0
        if n_bytes > MOST_TOGETHER:
            raise CheckpointError(
                self.out,
                f"too costly: the files of its cells have {n_bytes / 2**20:,.0f} MiB together, and "
                f"{MOST_TOGETHER / 2**20:,.0f} are read. The command sweep reads any size",
            )

    def size(self, path: Path, within: Path | None = None) -> int:
        """Return the size of a file in bytes, or 0 for a missing file or a link out of the folder `within`.

        The default of `within` is the sweep's folder.
        """
        try:
            check_inside(within or self.out, path)
            return path.stat().st_size
        except (OSError, ValueError):
            return 0

    def is_in_training(self, identity: str) -> bool:
        """Return whether a process holds the lock of an unfinished run, which ends with its process."""
        try:
            check_inside(self.out, path := self.unfinished(f"{identity}.lock"))
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError):
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def _read_cell(self, name: str, run: RunConfig, any_size: bool) -> Cell:
        path, failure = self.cell(name), self.failure(name)
        try:
            for file in () if any_size else (path / "cell.json", failure):
                with reading(file):
                    check_inside(file.parent, file)
            if link := self._lost(name):
                raise CheckpointError(link, "is a link to a folder that was not found. Bring the folder back")
            if path.exists():
                large = self.size(path / "cell.json", path) > LARGEST_CELL
                most = _largest_cell(run.task) if large else LARGEST_CELL
                data, content = _read(CellContent, path / "cell.json", CELL_FORMAT, most, most // 4)
                return Cell.trained(run, path, data, content, name)
            if failure.exists():
                _, failed = _read(Failure, failure, FAILURE_FORMAT, LARGEST_CELL)
                return Cell(run, "failed", error=failed.error, details=failed.details, stored_as=name)
        except CheckpointError as error:
            file, message = Path(error.path), str(error)
            if file.is_file() and os.access(file, os.R_OK) and not file.is_symlink():  # it was read
                moved = failure if file == failure else path
                message += f". Move {safe_text(moved, 500)} out of the sweep to train the run again"
            return Cell(run, "damaged", error=message, stored_as=name)
        return Cell(run, stored_as=name)

    def set_aside(self, identity: str) -> Path:
        """Move the unreadable files of an unfinished run to `unreadable`, and return the new path."""
        place = self.out / "unreadable"
        place.mkdir(parents=True, exist_ok=True)
        number = next(n for n in itertools.count(1) if not (place / f"{identity}-{n}").exists())
        return self.unfinished(identity).rename(place / f"{identity}-{number}")

    def finish(self, identity: str, content: Mapping[str, Any]) -> None:
        """Move a trained and measured run into the folder `cells`, atomically."""
        self._write(self.unfinished(identity) / "cell.json", CELL_FORMAT, content)
        target = self.cell(identity)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.failure(identity).unlink(missing_ok=True)
        os.rename(self.unfinished(identity), target)

    def fail(self, identity: str, error: str, details: str) -> None:
        """Record the error that prevents a run from training."""
        self.failure(identity).parent.mkdir(parents=True, exist_ok=True)
        content = {"id": identity, "error": error[:LONGEST_ERROR], "details": details[-LONGEST_DETAILS:]}
        self._write(self.failure(identity), FAILURE_FORMAT, content)

    def _write(self, path: Path, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps({"format": name, "format_version": VERSION, **content}, allow_nan=False)
        write_whole(path, text.encode())


def _largest_cell(task: Task) -> int:
    """Return the largest size of cell.json for a task, in bytes."""
    return min(MOST_BYTES, LARGEST_CELL + BYTES_A_NUMBER * (task.table_size + task.seq_len))


def _checked_ids(ids: object, n_cells: int) -> list[str]:
    """Check that there is one id for each cell, of the form of `cell_id`, which is safe as a folder name."""
    listed = ids if isinstance(ids, list) else []
    names = {name for name in listed if isinstance(name, str) and re.fullmatch("[0-9a-f]{16}", name)}
    if not isinstance(ids, list) or not len(ids) == len(names) == n_cells:
        raise ValueError(
            f"ids must be a list of {n_cells:,} different ids of 16 hexadecimal digits, got "
            f"{safe_repr(ids)}. Run the sweep again"
        )
    return ids


def _runs(cells: list[Any], without_places: bool) -> list[RunConfig]:
    """Read the configurations of cells; cells with equal tasks share one object.

    Raises:
        ValueError: If a configuration is invalid, or the tasks together have too many targets.
    """
    runs = []
    tasks = {}
    n_targets = 0
    for cell in cells:
        if not isinstance(cell, dict):
            raise ValueError(f"an entry of cells must be a table, got {safe_repr(cell)}. Run the sweep again")
        key = same_value(cell.get("task"))
        if key not in tasks:
            task = tasks[key] = read_stored_task(cell.get("task", {}), without_places=without_places)
            n_targets += task.table_size
        if n_targets > _MOST_TARGETS:
            raise ValueError(
                f"the {len(tasks):,} tasks of the sweep must have at most {_MOST_TARGETS:,} targets in "
                f"total, got {n_targets:,}. Give fewer values of the task's fields."
            )
        runs.append(RunConfig.from_dict(cell, tasks[key]))
    return runs


def open_sweep(out: str | os.PathLike[str]) -> SweepResult:
    """Read the folder of a sweep in its current state, also during training.

    Args:
        out: the folder that `sweep` wrote.

    Returns:
        Every requested run, in order, with its status.

    Raises:
        CheckpointError: If the folder does not belong to a sweep, or its list of runs is damaged. A damaged
            run gets the status `damaged` instead of an error.

    Example:
        >>> open_sweep("sweeps/a").counts  # doctest: +SKIP
        {'finished': 130, 'failed': 1, 'missing': 1}
    """
    folder = SweepFolder(out)
    return folder.read(folder.stored(without_places=True))


def _read(
    kind: type[Stored], path: Path, name: str, most_bytes: int, most_values: int = MOST_VALUES
) -> tuple[bytes, Stored]:
    """Return the bytes of a JSON file of this folder, and its content as a `kind`."""
    with reading(path, f"is no {name}"):
        data, content = read_bytes(path, most_bytes), None
        if not may_be_refused(data, most_values):
            with contextlib.suppress(ValueError):  # read again below, for the reason in words
                content = kind.from_json(data)
        if content is None:
            content = kind.from_dict(_table(path, data, name, most_values))
        check_format(path, vars(content), name, VERSION)
        return data, content


def _table(path: Path, data: bytes, name: str, most_values: int) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file, whose format must be `name`."""
    content = read_json(data, most_values=most_values)
    check_format(path, content, name, VERSION)
    return content
