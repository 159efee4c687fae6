"""The folder of a sweep: what was asked for, the cells that are done, those under way, those that failed.

| file                | what                                                                                |
|---------------------|-------------------------------------------------------------------------------------|
| sweep.json          | the id and the configuration of every cell that was asked for                       |
| cells/ID/           | a finished cell: a run's folder with `cell.json`; it appears atomically, whole      |
| unfinished/ID/      | a cell under way, with the state that it continues from                             |
| unreadable/ID-N/    | what a cell under way had that could not be read; the cell was begun anew           |
| failed/ID.json      | the error of a cell that cannot be trained                                          |
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorlens.files.container import check_format
from anchorlens.files.writing import atomic_write
from anchorlens.runs.identity import same_value
from anchorlens.runs.run_config import RunConfig
from anchorlens.safe import (
    MOST_BYTES,
    MOST_VALUES,
    CheckpointError,
    check_affordable,
    cost_factor,
    printable,
    read_bytes,
    read_json,
    reading,
    shown,
)
from anchorlens.sweep.cells import Cell, SweepResult, cell_id, cell_ids
from anchorlens.sweep.stored import CELL, FAILURE, LONGEST_DETAILS, LONGEST_ERROR, Kind, checked, quickly_read
from anchorlens.tasks.shared.base import Task

SWEEP_FORMAT, CELL_FORMAT, FAILURE_FORMAT = "anchorlens sweep", "anchorlens cell", "anchorlens failed cell"
VERSION = 1
LIST_VERSION = 1
"""Of sweep.json; in version 1 no ids were written, and a cell was called by its whole configuration."""
_LARGEST_LIST, _MOST_VALUES = 512 * 2**20, 10_000_000
"""Bytes and values of sweep.json: 100,000 cells."""
LARGEST_CELL, BYTES_A_NUMBER = 256 * 2**10, 64
"""Bytes of cell.json, and how many more for each number that its task or a sequence of it holds, up to 4 MiB:
accuracies are listed by pair, and some images are kept."""
MOST_TOGETHER = 512 * 2**20
"""Bytes of the files of all cells together that are read of a folder: some 15,000 cells."""
_MOST_TARGETS = 10_000_000
"""(Chain, key) of all different tasks of a sweep together; a target takes some 30 bytes."""

NamedRun = tuple[str, RunConfig]
"""A cell's id, which names its folder, and its run."""


class SweepFolder:
    """Knows where everything of a sweep is; the only one that reads and writes it."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        """Name the folder; nothing is read or written."""
        self.out = Path(out)

    @contextlib.contextmanager
    def held(self, runs: Sequence[RunConfig]) -> Iterator[list[NamedRun]]:
        """Be the only one who gives out the cells of this folder; note what is asked for, each with its id.

        Raises:
            ValueError: it holds something else, another process trains this sweep, or two cells are one run.
            OSError: it cannot be written.
        """
        from anchorlens.training.folder import claim  # with torch, which reading need not wait for

        in_use = "being trained by another process; wait for it, or choose another folder"
        lock = claim(self.out, self.path.name, what="sweep", in_use=in_use)
        try:
            self._clean()
            known = self.stored() if self.path.exists() else []
            named = _named(runs, known)
            wanted = dict(named) | dict(known)
            if len(wanted) > len(dict(known)) or not self.path.exists():
                wanted = dict(known) | wanted  # in the order in which they were first asked for
                cells = {"ids": list(wanted), "cells": [run.to_dict() for run in wanted.values()]}
                self._write(self.path, SWEEP_FORMAT, cells, LIST_VERSION)
            yield named
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

    def stored(self) -> list[NamedRun]:
        """Every cell that was ever asked for, with its id.

        Raises:
            CheckpointError: sweep.json is missing or cannot be understood.
        """
        content = _read(
            self.path, SWEEP_FORMAT, version=LIST_VERSION, most_bytes=_LARGEST_LIST, most_values=_MOST_VALUES
        )
        with reading(self.path, "is no list of cells"):
            if not isinstance(content["cells"], list):
                raise ValueError(f"cells must be a list, got {shown(content['cells'])}")
            runs = _runs(content["cells"])
            return list(zip(_checked_ids(content["ids"], len(runs)), runs, strict=True))

    def named(self, runs: Sequence[RunConfig]) -> list[NamedRun]:
        """Each of these runs with its id in this folder, which may not be there yet.

        Raises:
            ValueError: two of them are the same run, carried out or recorded in different ways.
            CheckpointError: sweep.json cannot be understood.
        """
        return _named(runs, self.stored() if self.path.exists() else [])

    def missing(self, cells: Iterable[NamedRun]) -> list[NamedRun]:
        """Those that are neither finished nor failed, each once."""
        return [
            (name, run)
            for name, run in dict(cells).items()
            if not self.cell(name).exists() and not self.failure(name).exists()
        ]

    def read(self, cells: Iterable[NamedRun], *, any_size: bool = False) -> SweepResult:
        """These cells as they stand now.

        A cell whose files cannot be read has the status `damaged`, and an error that says which and why.

        Args:
            cells: with their ids.
            any_size: read them however large they are together, as those of a sweep of one's own.

        Raises:
            CheckpointError: they are too large together.
        """
        cells = list(cells)
        if not any_size:
            self._check_size(cells)
        return SweepResult(self.out, tuple(self._known(name, run) for name, run in cells))

    def _known(self, name: str, run: RunConfig) -> Cell:
        cell = self._read_cell(name, run)
        if cell.status == "damaged":
            gc.collect(0)  # the error and what was read refer to each other, and no garbage is looked for
        return cell

    def _check_size(self, cells: Iterable[NamedRun]) -> None:
        """Refuse what would fill the memory, before any of it is read."""
        n_bytes = 0
        for name, run in cells:
            for path in (self.cell(name) / "cell.json", self.failure(name)):
                size = _size(path)
                n_bytes += size if size <= LARGEST_CELL or size <= _largest_cell(run.task) else 0
        most = cost_factor() * MOST_TOGETHER
        with reading(self.out):
            check_affordable(
                n_bytes,
                most,
                f"the files of its cells have {n_bytes / 2**20:,.0f} MiB together, and {most / 2**20:,.0f} "
                "are read",
            )

    def _read_cell(self, name: str, run: RunConfig) -> Cell:
        path, failure = self.cell(name), self.failure(name)
        try:
            if path.exists():
                large = _size(path / "cell.json") > LARGEST_CELL
                most = _largest_cell(run.task) if large else LARGEST_CELL
                content = _read(path / "cell.json", CELL_FORMAT, CELL, most_bytes=most, most_values=most // 4)
                cell = Cell(run, content["status"], path, content, content["error"], stored_as=name)
                return cell.packed()
            if failure.exists():
                content = _read(failure, FAILURE_FORMAT, FAILURE, most_bytes=LARGEST_CELL)
                return Cell(run, "failed", None, {}, content["error"], content["details"], name)
        except CheckpointError as error:
            remove = path if path.exists() else failure
            message = f"{error}; remove {printable(remove, 500)} to train it again"
            return Cell(run, "damaged", None, {}, message, stored_as=name)
        return Cell(run, stored_as=name)

    def set_aside(self, identity: str) -> Path:
        """Move what a cell under way has, which cannot be read, out of its way; where it is now."""
        place = self.out / "unreadable"
        place.mkdir(parents=True, exist_ok=True)
        number = next(n for n in itertools.count(1) if not (place / f"{identity}-{n}").exists())
        return self.unfinished(identity).rename(place / f"{identity}-{number}")

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
        details = None if details is None else details[-LONGEST_DETAILS:]
        content = {"id": identity, "error": error[:LONGEST_ERROR], "details": details}
        self._write(self.failure(identity), FAILURE_FORMAT, content)

    def _clean(self) -> None:
        """Remove what killed processes left half-written; those of a cell under way go with its run."""
        for folder in (self.out, self.out / "failed"):
            for leftover in folder.glob(".*.json.*.tmp"):
                leftover.unlink(missing_ok=True)

    def _write(self, path: Path, name: str, content: Mapping[str, Any], version: int = VERSION) -> None:
        text = json.dumps({"format": name, "format_version": version, **content}, allow_nan=False)
        with atomic_write(path) as file:
            file.write(text.encode())


def _largest_cell(task: Task) -> int:
    """Bytes that the cell.json of a task may have."""
    return min(MOST_BYTES, LARGEST_CELL + BYTES_A_NUMBER * (task.table_size + task.seq_len))


def _size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _named(runs: Sequence[RunConfig], known: Sequence[NamedRun]) -> list[NamedRun]:
    """Each run with the id under which it is known, or else a new one."""
    known_as = {cell_id(run): name for name, run in reversed(known)}
    return [(known_as.get(name, name), run) for name, run in zip(cell_ids(runs), runs, strict=True)]


def _checked_ids(ids: Any, n_cells: int) -> list[str]:
    """Ids as `cell_id` makes them, which are safe as the names of folders, one for each cell."""
    if not isinstance(ids, list) or len(ids) != n_cells or len(set(map(str, ids))) < n_cells:
        raise ValueError(f"ids must be a list of {n_cells:,} different ids, got {shown(ids)}")
    for name in ids:
        if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{16}", name):
            raise ValueError(f"an id must be 16 hexadecimal digits, got {shown(name)}")
    return ids


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
            n_targets += task.table_size
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
    with _uncollected():
        return folder.read(folder.stored())


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage while much is read that stays, which takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(
    path: Path,
    name: str,
    kind: Kind | None = None,
    *,
    version: int = VERSION,
    most_bytes: int = MOST_BYTES,
    most_values: int = MOST_VALUES,
) -> dict[str, Any]:
    """What a file of ours holds, or one line that says why it is none."""
    with reading(path, f"is no {name}"):
        data = read_bytes(path, most_bytes)
        if kind is not None and (content := quickly_read(kind, data, most_values)) is not None:
            check_format(path, content, name, version)
            return content
        content = read_json(data, most_values=most_values)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        check_format(path, content, name, version)
        return content if kind is None else checked(kind, content)
