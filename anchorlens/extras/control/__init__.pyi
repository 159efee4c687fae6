from .interventions import INTERVENTIONS as INTERVENTIONS
from .interventions import Intervention as Intervention
from .result import Attempt as Attempt
from .result import Control as Control
from .result import PhaseAnswers as PhaseAnswers
from .run import control as control
