from .engines import engine_of as engine_of
from .layout import architecture as architecture
from .numerics import numeric_settings as numeric_settings
