from . import checkpoints as checkpoints

# isort: split
# What products use; outsiders have no promise about it.
from .child_processes import TrainingError as TrainingError
from .child_processes import process_pool as process_pool
from .child_processes import safe_children as safe_children
from .jobs import grouped as grouped
from .jobs import train_in_jobs as train_in_jobs
from .loop import TrainingDiverged as TrainingDiverged
from .loop import TrainResult as TrainResult
from .plan import MOST_WORKERS as MOST_WORKERS
from .plan import check_runs as check_runs
from .plan import check_start as check_start
from .plan import processes as processes
from .plan import trained_together as trained_together
from .plan import training_plan as training_plan
from .progress import COMMAND_LINE_SECONDS as COMMAND_LINE_SECONDS
from .progress import Show as Show
from .progress import duration as duration
from .progress import progress_bar as progress_bar
from .run import train_many as train_many
from .run_folder import LONGEST_LINE as LONGEST_LINE
from .run_folder import claim as claim
from .run_folder import has_ended as has_ended
from .run_folder import log_line as log_line
from .run_folder import plausible_seconds as plausible_seconds
from .run_folder import read_log as read_log
