"""What a ModelConfig stands for: how its parameters start, lie in memory, and what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anchorlens.engine.flat_layout import Parameters
from anchorlens.engine.forward import FastModel
from anchorlens.engine.transformer_layout import Layout
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


class Transformer(Layout):
    """A HookedTransformer's parameters, in the memory of a stack, and its forward pass."""

    def initial_weights(self, config: ModelConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Every parameter as it starts, by HookedTransformer's names, from `seed` alone."""
        return initial_weights(config, seed, dtype)

    def function(self, config: ModelConfig, parameters: Parameters) -> FastModel:
        """One member as a function from tokens to logits at every position.

        Args:
            config: shape and variant.
            parameters: of one member, as `merged` gives them.
        """
        return FastModel(config, parameters, n_last=None)

    def build(
        self, config: ModelConfig, weights: Mapping[str, Tensor], device: str | torch.device
    ) -> HookedTransformer:
        """The HookedTransformer with these weights, in evaluation mode."""
        from anchorlens.models.hooked import model_with

        return model_with(config, weights, device).eval()
