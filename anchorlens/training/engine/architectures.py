"""The architecture of a model (initialization, memory layout, forward pass) from its configuration."""

from __future__ import annotations

from anchorlens.extras.concept_graphs.unet.config import UNetConfig
from anchorlens.extras.concept_graphs.unet.engine import UNetArchitecture
from anchorlens.models.config import ModelConfig
from anchorlens.training.engine.flat_layout import FlatLayout
from anchorlens.training.engine.transformer import Transformer


def architecture(config: ModelConfig | UNetConfig) -> FlatLayout:
    """The initialization, memory layout and forward pass that belong to a configuration."""
    return UNetArchitecture(config) if isinstance(config, UNetConfig) else Transformer(config)
