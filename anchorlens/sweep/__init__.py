"""Sweeps: many runs over a grid, trained by any number of processes, kept in one folder, drawn as maps."""

from __future__ import annotations

from anchorlens.sweep.cells import Cell, SweepResult
from anchorlens.sweep.diagram import write_diagram
from anchorlens.sweep.folder import open_sweep
from anchorlens.sweep.grid import grid
from anchorlens.sweep.run import sweep
from anchorlens.sweep.table import write_table

__all__ = ["Cell", "SweepResult", "grid", "open_sweep", "sweep", "write_diagram", "write_table"]
