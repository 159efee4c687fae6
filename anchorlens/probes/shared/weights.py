"""The weight matrices of a model, with merged heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer


def weight_matrices(model: HookedTransformer) -> dict[str, Float[Tensor, "row column"]]:
    """Return a dict from parameter names to weight matrices, with inputs as rows.

    The matrices W_Q, W_K and W_V are [d_model, n_heads * d_head]. If heads share keys and values, W_K and W_V
    have n_key_value_heads heads. W_O is [n_heads * d_head, d_model]. The result omits a matrix that the model
    does not have, for example an MLP matrix of an attention-only model. The function converts matrices of
    half precision to float32.
    """
    matrices = {"embed.W_E": model.W_E}
    if hasattr(model, "pos_embed"):  # a model with rotary positions has none
        matrices["pos_embed.W_pos"] = model.pos_embed.W_pos
    for layer in range(model.cfg.n_layers):
        block = model.blocks[layer]
        for name in ("W_Q", "W_K", "W_V"):  # _W_K holds each shared key or value head once
            weight = getattr(block.attn, f"_{name}", None)
            weight = getattr(block.attn, name) if weight is None else weight
            matrices[f"blocks.{layer}.attn.{name}"] = merged_heads(weight)
        matrices[f"blocks.{layer}.attn.W_O"] = rearrange(block.attn.W_O, "h d m -> (h d) m")
        if not model.cfg.attn_only:
            for name, weight in _mlp_matrices(block.mlp):
                matrices[f"blocks.{layer}.mlp.{name}"] = weight
    matrices["unembed.W_U"] = model.W_U
    return {name: single(matrix.detach()) for name, matrix in matrices.items()}


def _mlp_matrices(mlp: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices of an MLP by HookedTransformer's names, or all matrices of a mixture of experts."""
    named = {name: getattr(mlp, name, None) for name in ("W_in", "W_gate", "W_out")}
    if named["W_in"] is None:
        named = {name: weight for name, weight in mlp.named_parameters() if weight.dim() == 2}
    yield from ((name, weight) for name, weight in named.items() if weight is not None)


def single(weight: Tensor) -> Tensor:
    """Convert a weight of half precision to float32, and return any other weight unchanged."""
    return weight.float() if weight.dtype in (torch.float16, torch.bfloat16) else weight


def short_name(name: str) -> str:
    """Shorten a parameter's name for plots.

    >>> short_name("blocks.0.attn.W_Q"), short_name("up2.0.weight")
    ('0.W_Q', 'up2.0')
    """
    return name.removeprefix("blocks.").removesuffix(".weight").replace(".attn", "").replace(".mlp", "")


def merged_heads(
    weight: Float[Tensor, "head_index d_model d_head"],
) -> Float[Tensor, "d_model d_z"]:
    """Concatenate the heads of a weight to a matrix [d_model, n_heads * d_head]."""
    return rearrange(weight, "h m d -> m (h d)")
