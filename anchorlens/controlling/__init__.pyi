from .interventions import INTERVENTIONS as INTERVENTIONS
from .interventions import Intervention as Intervention
from .result import Answers as Answers
from .result import Attempt as Attempt
from .result import Control as Control
from .run import control as control
