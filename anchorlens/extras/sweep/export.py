"""The cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable

from anchorlens.extras.sweep.cells import Cell
from anchorlens.files.tables import write_rows


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write a table with one row, `Cell.row`, for each run.

    Args:
        cells: the runs, for example a `SweepResult`.
        path: the path of the file, `.csv` or `.parquet`. An existing file is replaced.

    Raises:
        ValueError: If there are no runs, or `path` is not a .csv or .parquet file in an existing folder.
        OSError: If writing fails. An existing file is then unchanged.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    write_rows([cell.row() for cell in cells], path)
