from .files.checkpoint import Checkpoint as Checkpoint
from .files.checkpoint import load_checkpoint as load_checkpoint
from .files.checkpoint import save_checkpoint as save_checkpoint
from .files.container import CheckpointError as CheckpointError
from .models.config import ModelConfig as ModelConfig
from .models.gamma import gamma_init_ as gamma_init_
from .models.hooked import build_model as build_model
from .models.unet.config import UNetConfig as UNetConfig
from .runs.presets import preset as preset
from .runs.train_config import TrainConfig as TrainConfig
from .runs.transfer import Transferred as Transferred
from .runs.transfer import transfer as transfer
from .tasks.addition import AdditionTask as AdditionTask
from .tasks.cogs.task import CogsTask as CogsTask
from .tasks.concept_graphs.task import ConceptGraphsTask as ConceptGraphsTask
from .tasks.prontoqa.task import PrOntoQATask as PrOntoQATask
from .tasks.scan import ScanTask as ScanTask
from .tasks.text.task import TextTask as TextTask
from .tasks.two_anchor.behaviour import Behaviour as Behaviour
from .tasks.two_anchor.behaviour import evaluate as evaluate
from .tasks.two_anchor.task import AnchorTask as AnchorTask
from .training.result import TrainResult as TrainResult
from .training.run import train as train
from .training.run import train_many as train_many
from .verdict.classify import classify as classify
from .verdict.verdict import Verdict as Verdict

__version__: str
