"""The cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable

from anchorlens.extras.sweep.cells import Cell
from anchorlens.files.tables import write_rows


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write a table with one row, `Cell.row`, for each cell.

    Args:
        cells: the cells, for example a `SweepResult`.
        path: the path of the file, `.csv` or `.parquet`; an existing file is replaced.

    Raises:
        ValueError: If the suffix is another, the folder is missing, there is no cell, or the path is not an
            ordinary file.
        OSError: If writing fails; an existing file is then unchanged.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    write_rows([cell.row() for cell in cells], path)
