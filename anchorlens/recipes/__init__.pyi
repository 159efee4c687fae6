# isort: split
# What products use; outsiders have no promise about it.
from .presets import preset_parts as preset_parts
from .run_config import Parts as Parts
from .run_config import RunConfig as RunConfig
from .run_config import execution_fields as execution_fields
from .run_config import field_advice as field_advice
from .run_config import field_owners as field_owners
from .run_config import identity as identity
from .run_config import merged as merged
from .run_config import same_value as same_value
from .run_config import sorted_by_part as sorted_by_part
from .train_config import TrainConfig as TrainConfig
