"""The architecture of a model (initialization, memory layout, forward pass) from its configuration."""

from __future__ import annotations

from anchorlens.engine.flat_layout import FlatLayout
from anchorlens.engine.transformer import Transformer
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.registry import tasks


def architecture(config: object) -> FlatLayout:
    """Return the initialisation, memory layout and forward pass of a model from its configuration.

    Args:
        config: a `ModelConfig`, or an instance of the `model_class` of a task.
    """
    if isinstance(config, ModelConfig):
        return Transformer(config)
    return next(task for task in tasks() if isinstance(config, task.model_class)).architecture(config)
