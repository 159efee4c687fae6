"""anchorlens: did a transformer learn the rules, or memorise the answers?

Train HookedTransformers with a gamma-scaled initialisation on two-anchor composite functions, and
measure what they learnt. Names are imported when they are first used, so that `import anchorlens`
costs nothing. The science is that of Zhang et al., arXiv 2405.05409 and 2501.08537.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    "AnchorTask": "task",
    "Behaviour": "behaviour",
    "Checkpoint": "checkpoint",
    "CheckpointError": "container",
    "ModelConfig": "model_config",
    "TrainConfig": "training.config",
    "TrainResult": "training.result",
    "Verdict": "verdict.verdict",
    "build_model": "model",
    "classify": "verdict.classify",
    "evaluate": "behaviour",
    "load_checkpoint": "checkpoint",
    "preset": "presets",
    "save_checkpoint": "checkpoint",
    "train": "training.run",
    "train_many": "training.run",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'anchorlens' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"anchorlens.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
