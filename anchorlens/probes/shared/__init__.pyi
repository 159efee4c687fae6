# isort: split
# What products use; outsiders have no promise about it.
from .anchor_sequences import at_trained_places as at_trained_places
from .checks import check_count as check_count
from .checks import check_inputs as check_inputs
from .checks import check_layer as check_layer
from .checks import check_model as check_model
from .contract import ProbeResult as ProbeResult
from .contract import call as call
from .contract import finite_number as finite_number
from .contract import number as number
from .contract import probe_result as probe_result
from .contract import result_of as result_of
from .contract import takes_any as takes_any
from .parameters import answered_with as answered_with
from .parameters import differentiated as differentiated
from .parameters import usable_state as usable_state
