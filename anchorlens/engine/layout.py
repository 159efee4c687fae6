"""The memory layout, initialization and forward pass of a model, which an engine needs.

The parameters of K models are one matrix with a row for each member. A transformer's row holds each matrix as
the forward pass reads it: heads concatenated ([d_model, n_heads * d_head]), keys followed by values, and
experts concatenated, all W_gate before all W_in ([d_model, 2 * num_experts * d_mlp]). `views` shows the same
memory under HookedTransformer's names and in its shapes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlens.engine.forward import FastModel, Parameters
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights, is_frozen, parameter_shapes, part_of_matrices
from anchorlens.tasks.registry import tasks

if TYPE_CHECKING:
    from jaxtyping import Float

    from anchorlens.models.library import HookedTransformer

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


_ROUTER = ".W_gate.weight"
"""The end of the name of a mixture's router, after the block's `mlp`. An expert's W_gate has the same end, so
experts are skipped first."""


class Transformer(FlatLayout):
    """The parameter layout, initialisation and forward pass of HookedTransformers in a stack."""

    def __init__(self, config: ModelConfig) -> None:
        """Lay out every trained parameter of `config`."""
        self.config = config
        shapes = parameter_shapes(config)
        frozen = {name for name in shapes if is_frozen(config, name)}
        super().__init__(shapes, frozen, self._merged_shapes(shapes, frozen))

    def _merged_shapes(
        self, shapes: dict[str, tuple[int, ...]], frozen: set[str]
    ) -> dict[str, tuple[int, ...]]:
        """Return the shape of each trained parameter as the forward pass reads it."""
        d_model, d_z = self.config.d_model, self.config.n_heads * self.config.d_head
        merged: dict[str, tuple[int, ...]] = {}
        for name, shape in shapes.items():
            if name in frozen or name.endswith(("_V",)) or ".experts." in name:
                continue  # values are merged with keys, experts with one another
            if name.endswith(("W_Q", "W_K")):
                shape = (d_model, d_z)
            elif name.endswith(("b_Q", "b_K")):
                shape = (d_z,)
            elif name.endswith("W_O"):
                shape = (d_z, d_model)
            if name.endswith("_K"):
                name, shape = f"{name}V", (*shape[:-1], 2 * d_z)
            if name.endswith(_ROUTER):
                mlp = name.removesuffix(_ROUTER)
                n, d_mlp = self.config.num_experts or 0, self.config.d_mlp
                merged[f"{mlp}.W_router"] = (d_model, n)
                merged[f"{mlp}.W_experts_in"] = (d_model, 2 * n * d_mlp)
                merged[f"{mlp}.W_experts_out"] = (n * d_mlp, d_model)
                continue
            merged[name] = shape
        return merged

    def _experts(self, name: str, value: Tensor) -> dict[str, Tensor]:
        """Return a merged router or experts by TransformerLens' names, each matrix [member, out, in]."""
        mlp, kind = name.rsplit(".", 1)
        n, d_mlp = self.config.num_experts or 0, self.config.d_mlp
        if kind == "W_router":
            return {f"{mlp}{_ROUTER}": value.mT}
        if kind == "W_experts_out":
            matrices = {"W_out": value.unflatten(1, (n, d_mlp)).unbind(1)}
        else:
            both = value.unflatten(2, (2, n, d_mlp)).unbind(2)
            matrices = {w: x.unbind(2) for w, x in zip(("W_gate", "W_in"), both, strict=True)}
        return {
            f"{mlp}.experts.{e}.{w}.weight": x.mT
            for w, of_all in matrices.items()
            for e, x in enumerate(of_all)
        }

    def trained_parameters(self, merged: Parameters) -> dict[str, Tensor]:
        """Return a map from HookedTransformer's names to trained parameters in its shapes, [member, ...].

        The parameters are views of the tensors that `merged` returns.
        """
        heads, d_head = self.config.n_heads, self.config.d_head
        views: dict[str, Tensor] = {}
        for name, value in merged.items():
            kind = name.rsplit(".", 1)[-1]
            if kind.endswith("_KV"):
                both = value.unflatten(-1, (2, heads, d_head)).unbind(-3)
                parts = dict(zip((name[:-1], f"{name[:-2]}V"), both, strict=True))
            elif kind.endswith("_Q"):
                parts = {name: value.unflatten(-1, (heads, d_head))}
            elif kind == "W_O":
                parts = {name: value.unflatten(1, (heads, d_head))}
            elif kind in ("W_router", "W_experts_in", "W_experts_out"):
                parts = self._experts(name, value)
            else:
                parts = {name: value}
            for part, view in parts.items():
                views[part] = view.movedim(-2, 1) if part.endswith(("W_Q", "W_K", "W_V")) else view
        return {name: views[name] for name in self.shapes if name in views}

    def parts(self) -> dict[str, str]:
        """Return a map from each weight matrix to its part: embedding, qk, vo or mlp."""
        return dict(part_of_matrices(self.config))

    def initial_weights(self, config: ModelConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return a map from HookedTransformer's names to the initial parameters that the seed determines."""
        return initial_weights(config, seed, dtype)

    def function(self, config: ModelConfig, parameters: Parameters) -> FastModel:
        """Return one model as a function from tokens to logits at every position.

        Args:
            config: the shape and the variant.
            parameters: the parameters of one model, as `merged` returns them.
        """
        return FastModel(config, parameters, n_last=None)

    def build(
        self, config: ModelConfig, weights: Mapping[str, Tensor], device: str | torch.device
    ) -> HookedTransformer:
        """Return the HookedTransformer with these weights, in evaluation mode."""
        from anchorlens.models.hooked import model_with

        return model_with(config, weights, device).eval()


def architecture(config: object) -> FlatLayout:
    """Return the initialisation, memory layout and forward pass of a model from its configuration.

    Args:
        config: a `ModelConfig`, or an instance of the `model_class` of a task.
    """
    if isinstance(config, ModelConfig):
        return Transformer(config)
    return next(task for task in tasks() if isinstance(config, task.model_class)).architecture(config)
