from .cells import Cell as Cell
from .cells import SweepResult as SweepResult
from .folder import open_sweep as open_sweep
from .grids import grid as grid
from .run import sweep as sweep
from .table import table_of as table_of
from .table import write_table as write_table
