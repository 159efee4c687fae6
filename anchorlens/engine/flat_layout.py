"""What an engine needs of any kind of model: initialization, memory layout and forward pass.

The parameters of K models are one matrix with a row for each member.
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
"""Floats in a cache line. Parameters whose size is a multiple of it come first and so stay aligned."""


class FlatLayout(ABC):
    """A layout that holds all trained parameters of a model in one row of a matrix [member, parameter].

    With this layout, an optimiser step, the gradient norm and a copy each take one operation. The forward
    pass reads the parameters under the names and shapes of `merged`. Other code reads the parameters under
    the names and shapes of `views`. In this base class, `merged` and `views` use the same names and shapes.
    """

    def __init__(self, shapes: Shapes, frozen: Collection[str] = (), merged: Shapes | None = None) -> None:
        """Lay out every trained parameter.

        Args:
            shapes: the shape of every parameter.
            frozen: the names of parameters that are zero and never trained.
            merged: the shapes of the trained parameters in the forward pass, if these differ.
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
        """Return the initial value of every parameter by name, as a function of the arguments only."""

    @abstractmethod
    def function(self, config: Any, parameters: Parameters) -> Any:
        """Return one model as a differentiable function of its input and of `parameters` from `merged`."""

    @abstractmethod
    def build(self, config: Any, weights: Mapping[str, Tensor], device: str | torch.device) -> Any:
        """Return the module with these weights, in evaluation mode."""

    def merged(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """Return a map from names to the parameters for the forward pass, as views of `rows`."""
        return {
            name: rows[:, start : start + math.prod(shape)].view(-1, *shape)
            for name, (start, shape) in self.slots.items()
        }

    def views(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """Return a map from names to trained parameters in the shapes of the module, [member, ...].

        The parameters share the memory of `rows`.
        """
        return self.trained_parameters(self.merged(rows))

    def trained_parameters(self, merged: Parameters) -> dict[str, Tensor]:
        """Return a map from names to trained parameters in the shapes of the module, as views of `merged`."""
        return {name: merged[name] for name in self.shapes if name in merged}

    def parts(self) -> dict[str, str]:
        """Return a map from each weight matrix to its part of the network, here always an empty text.

        The map omits biases and normalisation weights, because these parameters are not matrices.
        """
        return {name: "" for name, shape in self.shapes.items() if len(shape) > 1}

    def row(self, weights: Mapping[str, Tensor]) -> Float[Tensor, " parameter"]:
        """Return the row that holds the given parameters of one model."""
        row = next(iter(weights.values())).detach().new_empty(self.size)
        for name, view in self.views(row.unsqueeze(0)).items():
            view[0].copy_(weights[name].detach())
        return row

    def weights(self, row: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """Return a copy of one model's parameters by name, including the frozen parameters."""
        views = self.views(row.detach().clone().unsqueeze(0))
        return {
            name: views[name][0].contiguous() if name in views else row.new_zeros(shape)
            for name, shape in self.shapes.items()
        }
