"""The weight matrices of any HookedTransformer, heads merged, as probes read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


def weight_matrices(model: HookedTransformer) -> dict[str, Float[Tensor, "row column"]]:
    """Every weight matrix by its parameter name, inputs as rows.

    W_Q, W_K and W_V are [d_model, n_heads * d_head], W_O is [n_heads * d_head, d_model]. A matrix that
    the model lacks (an MLP's in an attention-only one) is left out.
    """
    matrices = {"embed.W_E": model.W_E}
    if hasattr(model, "pos_embed"):  # there is none where positions are rotated in
        matrices["pos_embed.W_pos"] = model.pos_embed.W_pos
    for layer in range(model.cfg.n_layers):
        block = model.blocks[layer]
        for name in ("W_Q", "W_K", "W_V"):
            matrices[f"blocks.{layer}.attn.{name}"] = merged_heads(getattr(block.attn, name))
        matrices[f"blocks.{layer}.attn.W_O"] = block.attn.W_O.flatten(0, 1)
        if not model.cfg.attn_only:
            matrices[f"blocks.{layer}.mlp.W_in"] = block.mlp.W_in
            matrices[f"blocks.{layer}.mlp.W_out"] = block.mlp.W_out
    matrices["unembed.W_U"] = model.W_U
    return {name: matrix.detach() for name, matrix in matrices.items()}


def short_name(name: str) -> str:
    """A parameter's name as pictures show it.

    >>> short_name("blocks.0.attn.W_Q")
    '0.W_Q'
    """
    return name.removeprefix("blocks.").replace(".attn", "").replace(".mlp", "")


def merged_heads(
    weight: Float[Tensor, "head_index d_model d_head"],
) -> Float[Tensor, "d_model d_z"]:
    """Heads side by side: [d_model, n_heads * d_head]."""
    return weight.movedim(0, 1).flatten(1)


def check_layer(model: HookedTransformer, layer: int, *, minimum: int = 0) -> int:
    """The index of a layer, counted from the end where it is negative.

    Raises:
        ValueError: there is no such layer.
    """
    n_layers = model.cfg.n_layers
    index = layer + n_layers if layer < 0 else layer
    if n_layers <= minimum:
        raise ValueError(
            f"the model must have more than {minimum} layer(s) for this, got one with {n_layers} layer(s)"
        )
    if not minimum <= index < n_layers:
        raise ValueError(
            f"layer must be in {minimum}..{n_layers - 1} of this model with {n_layers} layer(s), counted "
            f"from 0, got {layer}"
        )
    return index
