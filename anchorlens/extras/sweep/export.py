"""All cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable

from anchorlens.extras.sweep.cells import Cell
from anchorlens.files.tables import write_rows


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write a table with one row, `Cell.row`, for each cell.

    Args:
        cells: the cells, for example a `SweepResult`.
        path: `.csv` or `.parquet`; an existing file is replaced.

    Raises:
        ValueError: another suffix, a missing folder, no cell, or the path is no ordinary file.
        OSError: writing failed; an existing file is unchanged.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    write_rows([cell.row() for cell in cells], path)
