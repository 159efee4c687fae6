"""anchorlens: did a transformer learn the rules, or memorise the answers?

Train HookedTransformers with a gamma-scaled initialisation on two-anchor composite functions, and
measure what they learnt. Names are imported when they are first used, so that `import anchorlens`
costs nothing. The science is that of Zhang et al., arXiv 2405.05409 and 2501.08537.
"""

from __future__ import annotations

from anchorlens.lazy import lazy_names

TYPE_CHECKING = False  # as in typing, whose import is the slowest part of the command line's start
if TYPE_CHECKING:
    from anchorlens.behaviour import Behaviour, evaluate
    from anchorlens.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
    from anchorlens.container import CheckpointError
    from anchorlens.model import build_model
    from anchorlens.model_config import ModelConfig
    from anchorlens.presets import preset
    from anchorlens.task import AnchorTask
    from anchorlens.training.config import TrainConfig
    from anchorlens.training.result import TrainResult
    from anchorlens.training.run import train, train_many
    from anchorlens.verdict.classify import classify
    from anchorlens.verdict.verdict import Verdict

__version__ = "0.1.0"

_HOME = {
    "AnchorTask": "anchorlens.task",
    "Behaviour": "anchorlens.behaviour",
    "Checkpoint": "anchorlens.checkpoint",
    "CheckpointError": "anchorlens.container",
    "ModelConfig": "anchorlens.model_config",
    "TrainConfig": "anchorlens.training.config",
    "TrainResult": "anchorlens.training.result",
    "Verdict": "anchorlens.verdict.verdict",
    "build_model": "anchorlens.model",
    "classify": "anchorlens.verdict.classify",
    "evaluate": "anchorlens.behaviour",
    "load_checkpoint": "anchorlens.checkpoint",
    "preset": "anchorlens.presets",
    "save_checkpoint": "anchorlens.checkpoint",
    "train": "anchorlens.training.run",
    "train_many": "anchorlens.training.run",
}

__all__ = [
    "AnchorTask",
    "Behaviour",
    "Checkpoint",
    "CheckpointError",
    "ModelConfig",
    "TrainConfig",
    "TrainResult",
    "Verdict",
    "build_model",
    "classify",
    "evaluate",
    "load_checkpoint",
    "preset",
    "save_checkpoint",
    "train",
    "train_many",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
