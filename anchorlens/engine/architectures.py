"""From the configuration of a model, of whatever kind, to what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from anchorlens.engine.flat_layout import Parameters
from anchorlens.engine.transformer import Transformer
from anchorlens.engine.unet import UNetArchitecture
from anchorlens.models.config import ModelConfig
from anchorlens.models.unet.config import UNetConfig


class Architecture(Protocol):
    """How the parameters of a kind of model start, lie in memory, and what they compute.

    `FlatLayout` has all of it but the start, the function and the module.
    """

    shapes: dict[str, tuple[int, ...]]
    """Every parameter, the frozen ones too."""
    size: int
    """Trained numbers of a member."""

    def initial_weights(self, config: Any, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Every parameter as it starts, by its name, from `seed` alone."""
        ...

    def function(self, config: Any, parameters: Parameters) -> Any:
        """One member as a function that can be differentiated, of parameters as `merged` gives them."""
        ...

    def build(self, config: Any, weights: Mapping[str, Tensor], device: str | torch.device) -> Any:
        """The module with these weights, in evaluation mode."""
        ...

    def merged(self, rows: Tensor) -> dict[str, Tensor]:
        """The parameters [member, ...] in the memory of `rows` [member, parameter]."""
        ...

    def views(self, rows: Tensor) -> dict[str, Tensor]:
        """The same under the names and in the shapes of `shapes`."""
        ...

    def row(self, weights: Mapping[str, Tensor]) -> Tensor:
        """A member's row from its parameters."""
        ...

    def weights(self, row: Tensor) -> dict[str, Tensor]:
        """A copy of one member's parameters, from its row."""
        ...


def architecture(config: ModelConfig | UNetConfig) -> Architecture:
    """What is made of a configuration."""
    return UNetArchitecture(config) if isinstance(config, UNetConfig) else Transformer(config)
