"""How the parameters of K models lie in memory, and under which names.

All trained parameters of a member are one row of a [member, parameter] matrix, so that the optimizer,
the gradient norm and a copy are one operation each. Within the row each matrix lies as the forward pass
reads it: heads merged ([d_model, n_heads * d_head]), keys beside values. `views` shows the same memory
under HookedTransformer's names and in its shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import is_frozen, parameter_shapes

if TYPE_CHECKING:
    from jaxtyping import Float

Parameters = Mapping[str, Tensor]
"""Parameter name -> tensor [member, ...]."""

_ALIGNED = 16
"""Floats of a cache line; parameters whose size is a multiple of it come first, so that they stay aligned."""


class Layout:
    """Where each parameter of a ModelConfig stands in a member's row."""

    def __init__(self, config: ModelConfig) -> None:
        """Lay out every trained parameter of `config`."""
        self.config = config
        self.shapes = parameter_shapes(config)
        self.frozen = {name: shape for name, shape in self.shapes.items() if is_frozen(config, name)}
        merged = self._merged_shapes()
        order = sorted(merged, key=lambda name: math.prod(merged[name]) % _ALIGNED != 0)
        self.slots: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.size = 0
        for name in order:
            self.slots[name] = (self.size, merged[name])
            self.size += math.prod(merged[name])

    def _merged_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter as the forward pass reads it."""
        d_z = self.config.n_heads * self.config.d_head
        merged: dict[str, tuple[int, ...]] = {}
        for name, shape in self.shapes.items():
            if name in self.frozen or name.endswith(("_V",)):
                continue  # a value lies beside its key
            if name.endswith(("W_Q", "W_K")):
                shape = (self.config.d_model, d_z)
            elif name.endswith(("b_Q", "b_K")):
                shape = (d_z,)
            elif name.endswith("W_O"):
                shape = (d_z, self.config.d_model)
            if name.endswith("_K"):
                name, shape = f"{name}V", (*shape[:-1], 2 * d_z)
            merged[name] = shape
        return merged

    def merged(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """The parameters as the forward pass reads them, sharing the memory of `rows`."""
        return {
            name: rows[:, start : start + math.prod(shape)].view(-1, *shape)
            for name, (start, shape) in self.slots.items()
        }

    def views(self, rows: Float[Tensor, "member parameter"]) -> dict[str, Tensor]:
        """The trained parameters under HookedTransformer's names and in its shapes, [member, ...].

        They share the memory of `rows`.
        """
        heads, d_head = self.config.n_heads, self.config.d_head
        views: dict[str, Tensor] = {}
        for name, value in self.merged(rows).items():
            kind = name.rsplit(".", 1)[-1]
            if kind.endswith("_KV"):
                both = value.unflatten(-1, (2, heads, d_head)).unbind(-3)
                parts = dict(zip((name[:-1], f"{name[:-2]}V"), both, strict=True))
            elif kind.endswith("_Q"):
                parts = {name: value.unflatten(-1, (heads, d_head))}
            elif kind == "W_O":
                parts = {name: value.unflatten(1, (heads, d_head))}
            else:
                parts = {name: value}
            for part, view in parts.items():
                views[part] = view.movedim(-2, 1) if part.endswith(("W_Q", "W_K", "W_V")) else view
        return {name: views[name] for name in self.shapes if name in views}

    def row(self, weights: Mapping[str, Tensor]) -> Float[Tensor, " parameter"]:
        """A member's row from its parameters under HookedTransformer's names."""
        row = weights["embed.W_E"].detach().new_empty(self.size)
        for name, view in self.views(row.unsqueeze(0)).items():
            view[0].copy_(weights[name].detach())
        return row

    def weights(self, row: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """A copy of one member's parameters, the frozen ones too, under HookedTransformer's names."""
        views = self.views(row.detach().clone().unsqueeze(0))
        return {
            name: views[name][0].contiguous() if name in views else row.new_zeros(shape)
            for name, shape in self.shapes.items()
        }
