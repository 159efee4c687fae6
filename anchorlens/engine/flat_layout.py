"""What every kind of model is to an engine: how it starts, lies in memory and computes.

The parameters of K models lie in one matrix, those of a member in one of its rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

Parameters = Mapping[str, Tensor]
"""Parameter name -> tensor [member, ...]."""
Shapes = Mapping[str, tuple[int, ...]]
"""Parameter name -> its shape."""

_ALIGNED = 16
"""Floats of a cache line; parameters whose size is a multiple of it come first, so that they stay aligned."""


class FlatLayout(ABC):
    """All trained parameters of a member in one row of a [member, parameter] matrix.

    So the optimizer, the gradient norm and a copy are one operation each. How the forward pass reads a
    parameter (`merged`) may differ from how it is called and shaped elsewhere (`views`): here it does not.
    """

    def __init__(self, shapes: Shapes, frozen: Collection[str] = (), merged: Shapes | None = None) -> None:
        """Lay out every trained parameter.

        Args:
            shapes: every parameter.
            frozen: those that are zero and never trained.
            merged: the trained ones as the forward pass reads them, where that differs.
        """
        self.shapes = dict(shapes)
        self.frozen = {name: shape for name, shape in shapes.items() if name in frozen}
        if merged is None:
            merged = {name: shape for name, shape in shapes.items() if name not in self.frozen}
        self.slots: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.size = 0
        for name in sorted(merged, key=lambda name: math.prod(merged[name]) % _ALIGNED != 0):
            self.slots[name] = (self.size, merged[name])
            self.size += math.prod(merged[name])

    @abstractmethod
    def initial_weights(self, config: Any, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Every parameter as it starts, by its name, from `seed` alone."""

    @abstractmethod
    def function(self, config: Any, parameters: Parameters) -> Any:
        """One member as a function that can be differentiated, of parameters as `merged` gives them."""

    @abstractmethod
    def build(self, config: Any, weights: Mapping[str, Tensor], device: str | torch.device) -> Any:
        """The module with these weights, in evaluation mode."""

    def merged(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """The parameters as the forward pass reads them, sharing the memory of `rows`."""
        return {
            name: rows[:, start : start + math.prod(shape)].view(-1, *shape)
            for name, (start, shape) in self.slots.items()
        }

    def views(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """The trained parameters under their names and in their shapes, [member, ...].

        They share the memory of `rows`.
        """
        return self.named(self.merged(rows))

    def named(self, merged: Parameters) -> dict[str, Tensor]:
        """The trained parameters under their names and in their shapes: views of what `merged` gives."""
        return {name: merged[name] for name in self.shapes if name in merged}

    def parts(self) -> dict[str, str]:
        """Weight matrix, by its name, -> the part of the network that it belongs to; here there are no parts.

        What is no matrix (a bias, a LayerNorm) is not in it.
        """
        return {name: "" for name, shape in self.shapes.items() if len(shape) > 1}

    def row(self, weights: Mapping[str, Tensor]) -> Float[Tensor, " parameter"]:
        """A member's row from its parameters under their names."""
        row = next(iter(weights.values())).detach().new_empty(self.size)
        for name, view in self.views(row.unsqueeze(0)).items():
            view[0].copy_(weights[name].detach())
        return row

    def weights(self, row: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """A copy of one member's parameters, the frozen ones too, under their names."""
        views = self.views(row.detach().clone().unsqueeze(0))
        return {
            name: views[name][0].contiguous() if name in views else row.new_zeros(shape)
            for name, shape in self.shapes.items()
        }
