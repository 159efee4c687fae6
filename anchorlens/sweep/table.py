"""All cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from anchorlens.files.writing import atomic_write, check_can_write
from anchorlens.sweep.cells import Cell

SUFFIXES = (".csv", ".parquet")


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write one row for each cell, with everything that `Cell.row` gives.

    A column is there if any cell has it; what a cell has not is empty. Lists and tables (the anchors, the
    unseen pairs) are JSON text. In CSV an apostrophe stands before a text that a spreadsheet would take for
    a formula.

    Args:
        cells: of a sweep; a `SweepResult` will do.
        path: `.csv` or `.parquet`; a file that is there is replaced.

    Raises:
        ValueError: another suffix, no such folder, no cell, or what is there is no ordinary file.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    path = check_can_write(path, "a table's name", SUFFIXES)
    table = table_of(cells)
    with atomic_write(path) as file:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(_without_formulas(table), file)
        else:
            pyarrow.parquet.write_table(table, file)


def table_of(cells: Iterable[Cell]) -> pyarrow.Table:
    """The table that `write_table` writes, as a pyarrow table: a row for each cell.

    Args:
        cells: of a sweep; a `SweepResult` will do.

    Raises:
        ValueError: no cell.
    """
    rows = [cell.row() for cell in cells]
    if not rows:
        raise ValueError("a table must have at least one cell, got none")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pyarrow.table({name: _column([row.get(name) for row in rows]) for name in names})


def _without_formulas(table: pyarrow.Table) -> pyarrow.Table:
    """The table with an apostrophe before each text and name that a spreadsheet would take for a formula."""
    columns = [
        pyarrow.array([text and _no_formula(text) for text in column.to_pylist()], pyarrow.string())
        if column.type == pyarrow.string()
        else column
        for column in table.columns
    ]
    return pyarrow.table(columns, names=[_no_formula(name) for name in table.column_names])


def _no_formula(text: str) -> str:
    """The text behind an apostrophe, where a spreadsheet would take it for a formula.

    >>> _no_formula("=HYPERLINK(1)"), _no_formula("-1"), _no_formula("a=b")
    ("'=HYPERLINK(1)", '-1', 'a=b')
    """
    return f"'{text}" if text.startswith(_STARTS_OF_FORMULAS) and not _NUMBER.fullmatch(text) else text


_STARTS_OF_FORMULAS = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")


def _column(values: list[Any]) -> pyarrow.Array:
    """The values of a column, of one type; as JSON text where they are of several, nested, or too large."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {int, float}:
        kinds, values = {float}, [value if value is None else float(value) for value in values]
    too_large = kinds == {int} and max(map(abs, present)) >= 2**63
    if kinds <= {str} or (len(kinds) == 1 and kinds <= {bool, int, float} and not too_large):
        return pyarrow.array([value and _text(value) for value in values])
    texts = [value if value is None else json.dumps(value, sort_keys=True) for value in values]
    return pyarrow.array(texts, pyarrow.string())


def _text(value: Any) -> Any:
    """A value as it may stand in a file: what is no text in a string is replaced."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
