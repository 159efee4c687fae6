from .engines import engine_of as engine_of
from .layout import architecture as architecture
from .numerics import numeric_settings as numeric_settings

# isort: split
# What products use; outsiders have no promise about it.
from .engines import Stack as Stack
from .forward import Parameters as Parameters
from .layout import FlatLayout as FlatLayout
