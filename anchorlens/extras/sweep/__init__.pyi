from .cells import Cell as Cell
from .cells import SweepResult as SweepResult
from .cells import write_table as write_table
from .grids import grid as grid
from .run import sweep as sweep
from .sweep_folder import open_sweep as open_sweep
