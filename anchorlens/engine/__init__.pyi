from .architectures import architecture as architecture
from .choice import engine_of as engine_of
from .numerics import numeric_settings as numeric_settings
