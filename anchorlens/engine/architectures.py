"""The architecture of a model (initialization, memory layout, forward pass) from its configuration."""

from __future__ import annotations

from anchorlens.engine.flat_layout import FlatLayout
from anchorlens.engine.transformer import Transformer
from anchorlens.engine.unet import UNetArchitecture
from anchorlens.models.config import ModelConfig
from anchorlens.models.unet.config import UNetConfig


def architecture(config: ModelConfig | UNetConfig) -> FlatLayout:
    """The initialization, memory layout and forward pass that belong to a configuration."""
    return UNetArchitecture(config) if isinstance(config, UNetConfig) else Transformer(config)
