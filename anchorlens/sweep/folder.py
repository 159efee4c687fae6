"""The folder of a sweep: what was asked for, the cells that are done, those under way, those that failed.

| file                | what                                                                                |
|---------------------|-------------------------------------------------------------------------------------|
| sweep.json          | the configuration of every cell that was asked for                                  |
| cells/ID/           | a finished cell: a run's folder with `cell.json`; it appears atomically, whole      |
| unfinished/ID/      | a cell under way, with the state that it continues from                             |
| failed/ID.json      | the error of a cell that cannot be trained                                          |
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

from anchorlens.files.container import CheckpointError, atomic_write, readable
from anchorlens.files.headers import SENSELESS, cause, check_format
from anchorlens.foreign import MOST_BYTES, MOST_VALUES, printable, read_bytes, read_json, shown
from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep.cells import Cell, SweepResult, cell_id, same_value
from anchorlens.sweep.stored import checked_cell, checked_failure

SWEEP_FORMAT, CELL_FORMAT, FAILURE_FORMAT = "anchorlens sweep", "anchorlens cell", "anchorlens failed cell"
VERSION = 1
_LARGEST_LIST, _MOST_VALUES_OF_LIST = 512 * 2**20, 10_000_000
"""Bytes and values of sweep.json: 100,000 cells."""
_MOST_TARGETS = 10_000_000
"""(Chain, key) of all different tasks of a sweep together; a target takes some 30 bytes."""


class SweepFolder:
    """Knows where everything of a sweep is; the only one that reads and writes it."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        """Name the folder; nothing is read or written."""
        self.out = Path(out)

    @contextlib.contextmanager
    def held(self, runs: Sequence[RunConfig]) -> Iterator[None]:
        """Be the only one who gives out the cells of this folder; note what is asked for.

        Raises:
            ValueError: it holds something else, or another process trains this sweep.
            OSError: it cannot be written.
        """
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"out must be a folder, got the file {self.out}; choose another name")
        if not self.path.exists() and self.out.exists():
            foreign = [file.name for file in self.out.iterdir() if not file.name.startswith(".")]
            if foreign:
                raise ValueError(
                    f"{self.out} holds {shown(foreign[0])} and no sweep; choose a new or empty folder"
                )
        self.out.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.out / ".lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise ValueError(
                f"{self.out} is being trained by another process; wait for it, or choose another folder"
            ) from None
        try:
            self._clean()
            known = {cell_id(run): run for run in (self.runs() if self.path.exists() else [])}
            missing = {cell_id(run): run for run in runs}.keys() - known.keys()
            if missing or not self.path.exists():
                both = known | {cell_id(run): run for run in runs}
                self._write(self.path, SWEEP_FORMAT, {"cells": [run.to_dict() for run in both.values()]})
            yield
        finally:
            lock.release()

    @property
    def path(self) -> Path:
        """The file that says what was asked for."""
        return self.out / "sweep.json"

    def cell(self, identity: str) -> Path:
        """Where a finished cell is."""
        return self.out / "cells" / identity

    def unfinished(self, identity: str) -> Path:
        """Where a cell is while it is trained."""
        return self.out / "unfinished" / identity

    def failure(self, identity: str) -> Path:
        """Where the error of a failed cell is."""
        return self.out / "failed" / f"{identity}.json"

    def runs(self) -> list[RunConfig]:
        """The configuration of every cell that was ever asked for.

        Raises:
            CheckpointError: sweep.json is missing or cannot be understood.
        """
        content = _read(self.path, SWEEP_FORMAT, most_bytes=_LARGEST_LIST, most_values=_MOST_VALUES_OF_LIST)
        try:
            if not isinstance(content["cells"], list):
                raise ValueError(f"cells must be a list, got {shown(content['cells'])}")
            return _runs(content["cells"])
        except SENSELESS as error:
            raise CheckpointError(self.path, f"is no list of cells: {cause(error)}") from None

    def read(self, runs: Sequence[RunConfig]) -> SweepResult:
        """These cells as they stand now.

        A cell whose files cannot be read has the status `damaged`, and an error that says which and why.
        """
        return SweepResult(self.out, tuple(self.read_cell(run) for run in runs))

    def read_cell(self, run: RunConfig) -> Cell:
        """One cell as it stands now."""
        identity = cell_id(run)
        path, failure = self.cell(identity), self.failure(identity)
        try:
            if path.exists():
                content = _read(path / "cell.json", CELL_FORMAT, checked_cell)
                return Cell(run, content["status"], path, content, content["error"])
            if failure.exists():
                content = _read(failure, FAILURE_FORMAT, checked_failure)
                return Cell(run, "failed", None, {}, content["error"], content["details"])
        except CheckpointError as error:
            remove = path if path.exists() else failure
            return Cell(
                run, "damaged", None, {}, f"{error}; remove {printable(remove, 500)} to train it again"
            )
        return Cell(run)

    def finish(self, identity: str, content: Mapping[str, Any]) -> None:
        """Put a trained and measured cell in its place, whole."""
        self._write(self.unfinished(identity) / "cell.json", CELL_FORMAT, content)
        target = self.cell(identity)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.failure(identity).unlink(missing_ok=True)
        os.rename(self.unfinished(identity), target)

    def fail(self, identity: str, error: str, details: str | None) -> None:
        """Note why a cell cannot be trained."""
        self.failure(identity).parent.mkdir(parents=True, exist_ok=True)
        content = {"id": identity, "error": error, "details": details}
        self._write(self.failure(identity), FAILURE_FORMAT, content)

    def _clean(self) -> None:
        """Remove what killed processes left half-written; those of a cell under way go with its run."""
        for folder in (self.out, self.out / "failed"):
            for leftover in folder.glob(".*.json.*.tmp"):
                leftover.unlink(missing_ok=True)

    def _write(self, path: Path, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps({"format": name, "format_version": VERSION, **content}, allow_nan=False)
        with atomic_write(path) as file:
            file.write(text.encode())


def _runs(cells: list[Any]) -> list[RunConfig]:
    """The configurations of cells; those of one task share it.

    Raises:
        ValueError: one makes no sense, or their tasks take more memory than they should.
    """
    runs, tasks, n_targets = [], {}, 0
    for cell in cells:
        if not isinstance(cell, dict):
            raise ValueError(f"a cell must be a table, got {shown(cell)}")
        key = same_value(cell.get("task"))
        runs.append(RunConfig.from_dict(cell, tasks.get(key)))
        if key not in tasks:
            task = tasks[key] = runs[-1].task
            n_targets += len(task.pairs) * len(task.keys)
        if n_targets > _MOST_TARGETS:
            raise ValueError(
                f"its {len(tasks):,} tasks have more than {_MOST_TARGETS:,} targets together; take fewer "
                "values of the fields of the task"
            )
    return runs


def open_sweep(out: str | os.PathLike[str]) -> SweepResult:
    """Read a sweep's folder as it stands, also while it is being trained.

    Args:
        out: the folder that `sweep` wrote.

    Returns:
        Every cell that was ever asked for, in that order: finished, failed or missing.

    Raises:
        CheckpointError: no sweep's folder, or its list of cells is damaged. A damaged cell is one of them.

    Example:
        >>> open_sweep("sweeps/a").counts  # doctest: +SKIP
        {'finished': 130, 'failed': 1, 'missing': 1}
    """
    folder = SweepFolder(out)
    return folder.read(folder.runs())


def _read(
    path: Path,
    name: str,
    check: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    *,
    most_bytes: int = MOST_BYTES,
    most_values: int = MOST_VALUES,
) -> dict[str, Any]:
    """What a file of ours holds, or one line that says why it is none."""
    with readable(path):
        try:
            content = read_json(read_bytes(path, most_bytes), most_values=most_values)
            if not isinstance(content, dict):
                raise ValueError("it holds no JSON object")
            check_format(path, content, name, VERSION)
            return check(content)
        except CheckpointError:
            raise
        except ValueError as error:
            raise CheckpointError(path, f"is no {name}: {error}") from None
