"""All cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from anchorlens.files.container import atomic_write
from anchorlens.sweep.cells import Cell

SUFFIXES = (".csv", ".parquet")


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write one row for each cell, with everything that `Cell.row` gives.

    A column is there if any cell has it; what a cell has not is empty. Lists and tables (the anchors, the
    unseen pairs) are JSON text.

    Args:
        cells: of a sweep; a `SweepResult` will do.
        path: `.csv` or `.parquet`; a file that is there is replaced.

    Raises:
        ValueError: another suffix, no such folder, or no cell.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    path = check_table_path(path)
    table = _table([cell.row() for cell in cells])
    with atomic_write(path) as file:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, file)
        else:
            pyarrow.parquet.write_table(table, file)


def check_table_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a table can be written there.

    Raises:
        ValueError: another suffix, or no such folder.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a table's name must end in .csv or .parquet, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder of {str(path)!r} must exist; make it first")
    return path


def _table(rows: list[dict[str, Any]]) -> pyarrow.Table:
    if not rows:
        raise ValueError("a table must have at least one cell, got none")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pyarrow.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pyarrow.Array:
    """The values of a column, of one type; as JSON text where they are of several, nested, or too large."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {int, float}:
        kinds, values = {float}, [value if value is None else float(value) for value in values]
    too_large = kinds == {int} and max(map(abs, known)) >= 2**63
    if kinds <= {str} or (len(kinds) == 1 and kinds <= {bool, int, float} and not too_large):
        return pyarrow.array([value and _text(value) for value in values])
    texts = [value if value is None else json.dumps(value, sort_keys=True) for value in values]
    return pyarrow.array(texts, pyarrow.string())


def _text(value: Any) -> Any:
    """A value as it may stand in a file: what is no text in a string is replaced."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
