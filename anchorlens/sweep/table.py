"""All cells of a sweep as one table: CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable

from anchorlens.files.tables import write_rows
from anchorlens.sweep.cells import Cell


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write one row for each cell, with everything that `Cell.row` gives.

    Args:
        cells: of a sweep; a `SweepResult` will do.
        path: `.csv` or `.parquet`; a file that is there is replaced.

    Raises:
        ValueError: another suffix, no such folder, no cell, or what is there is no ordinary file.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    write_rows([cell.row() for cell in cells], path)
