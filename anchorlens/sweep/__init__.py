"""Sweeps: many runs over a grid, trained by any number of processes, kept in one folder, drawn as maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorlens.lazy import lazy_names

if TYPE_CHECKING:
    from anchorlens.sweep.card import cell_html, sweep_html
    from anchorlens.sweep.cells import Cell, SweepResult
    from anchorlens.sweep.diagram import write_diagram
    from anchorlens.sweep.folder import open_sweep
    from anchorlens.sweep.grids import grid
    from anchorlens.sweep.run import sweep
    from anchorlens.sweep.table import write_table

__all__ = [
    "Cell",
    "SweepResult",
    "cell_html",
    "grid",
    "open_sweep",
    "sweep",
    "sweep_html",
    "write_diagram",
    "write_table",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Cell": "anchorlens.sweep.cells",
        "SweepResult": "anchorlens.sweep.cells",
        "cell_html": "anchorlens.sweep.card",
        "grid": "anchorlens.sweep.grids",
        "open_sweep": "anchorlens.sweep.folder",
        "sweep": "anchorlens.sweep.run",
        "sweep_html": "anchorlens.sweep.card",
        "write_diagram": "anchorlens.sweep.diagram",
        "write_table": "anchorlens.sweep.table",
    },
)
