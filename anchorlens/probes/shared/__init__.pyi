# isort: split
# What products use; outsiders have no promise about it.
from .anchor_sequences import at_trained_places as at_trained_places
from .calling import call as call
from .calling import takes_any as takes_any
from .checks import check_count as check_count
from .checks import check_inputs as check_inputs
from .checks import check_layer as check_layer
from .checks import check_model as check_model
from .parameters import answered_with as answered_with
from .parameters import differentiated as differentiated
from .parameters import usable_state as usable_state
from .result import ProbeResult as ProbeResult
from .result import finite_number as finite_number
from .result import number as number
from .result import probe_result as probe_result
from .result import result_of as result_of
