"""From the configuration of a model, of whatever kind, to what is made of it."""

from __future__ import annotations

from anchorlens.engine.flat_layout import FlatLayout
from anchorlens.engine.transformer import Transformer
from anchorlens.engine.unet import UNetArchitecture
from anchorlens.models.config import ModelConfig
from anchorlens.models.unet.config import UNetConfig


def architecture(config: ModelConfig | UNetConfig) -> FlatLayout:
    """What is made of a configuration."""
    return UNetArchitecture(config) if isinstance(config, UNetConfig) else Transformer(config)
