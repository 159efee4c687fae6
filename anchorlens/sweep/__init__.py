"""Sweeps: many runs over a grid, trained by any number of processes, kept in one folder, drawn as maps."""

from __future__ import annotations

from anchorlens.sweep.cells import Cell, SweepResult
from anchorlens.sweep.grid import grid

__all__ = ["Cell", "SweepResult", "grid"]
