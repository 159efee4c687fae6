"""Weights of a transformer of other software with a HookedTransformer's names and layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anchorlens.configuration import Config, check_number, number, suggestion
from anchorlens.texts import safe_repr, safe_text

ASSUMED: dict[str, Any] = {
    **{"positional_embedding_type": "standard", "attention_dir": "causal", "eps": 1e-5},
    **{"use_attn_scale": True, "parallel_attn_mlp": False},
    **{"scale_attn_by_inverse_layer_idx": False, "use_local_attn": False},
}
"""The values of a HookedTransformerConfig that is made without these fields."""
_FROM_RESIDUAL = ("W_Q", "W_K", "W_V", "W_in", "W_gate", "W_U")
"""The matrices [d_model, out]; the others are [in, d_model]."""
_WITH_BIAS = (".W_Q", ".W_K", ".W_V", ".W_O", ".W_in", ".W_out", ".W_U", ".w")


@dataclass(frozen=True)
class StoredWeight(Config):
    """The place of a HookedTransformer's weight in another model."""

    name: str = ""
    """The name in the other model."""
    transpose: bool | None = None
    """Whether the matrix is stored as [out, in]. Default: by its shape, and [out, in] for a square matrix."""
    part: int | None = number(None, minimum=0, maximum=2)
    """The third of a matrix of queries, keys and values. Default: in the order Q, K, V."""
    per_head: bool = False
    """Whether such a matrix has the queries, keys and values of each head next to each other."""


def mapped(
    tensors: Mapping[str, Tensor],
    names: Mapping[str, StoredWeight],
    n_heads: object,
    *,
    square_is_stored: bool = False,
) -> dict[str, Tensor]:
    """Return weights with a HookedTransformer's names and layout.

    Args:
        tensors: the weights by the other model's names.
        names: the map.
        n_heads: the number of heads, for matrices with merged heads.
        square_is_stored: whether square matrices are stored as [in, out], where the map does not say it.

    Raises:
        ValueError: If a weight is missing, or has no such layout.
    """
    patterns = [pattern_of(entry) for entry in names.values()]
    layers = {one[1] for pattern in patterns for name in tensors if (one := pattern.fullmatch(name))}
    numbers, flat = sorted(filter(None, layers), key=int), {}
    for key, entry in names.items():
        for k, layer in enumerate(numbers if "{l}" in key else [""]):
            own = _stored(tensors, entry.name.replace("{l}", layer))
            flat[key.replace("{l}", str(k))] = (own, entry)
    embedding, entry = flat.get("embed.W_E", (torch.empty(0, device="cpu"), StoredWeight()))
    if embedding.ndim != 2:
        raise ValueError(
            "the map of names must have embed.W_E, a token embedding [d_vocab, d_model], got shape "
            f"{list(embedding.shape)}. Correct the map"
        )
    d_model, found = embedding.shape[0 if entry.transpose else -1], {}
    for key, (tensor, entry) in flat.items():
        kind = key.rpartition(".")[2]
        if tensor.ndim > 1 and kind.startswith("W_"):
            fits = [size == d_model for size in tensor.shape[-2:]]
            turned = not fits[kind not in _FROM_RESIDUAL]
            if fits[0] == fits[1]:
                turned = not square_is_stored and kind not in ("W_E", "W_pos")
            turned = turned if entry.transpose is None else entry.transpose
            tensor = tensor.transpose(-1, -2) if turned else tensor
        found[key] = _in_heads(tensor, kind, entry, n_heads)
    return found


def with_biases(weights: Mapping[str, Tensor], norm: object = "LN") -> tuple[dict[str, Tensor], list[str]]:
    """Return mapped weights with zeros for the biases that they lack, and a note if there are any.

    Args:
        weights: the weights by a HookedTransformer's names.
        norm: the `normalization_type`; "RMS" has no biases.
    """
    found, absent = dict(weights), []
    for name, weight in weights.items():
        bias = bias_of(name)
        if name.endswith(_WITH_BIAS) and bias not in found and not (norm == "RMS" and name.endswith(".w")):
            shape = weight.shape[::2] if weight.ndim == 3 and name[-1] in "QKV" else weight.shape[-1:]
            found[bias] = weight.new_zeros(shape)
            absent.append(bias)
    note = f"{len(absent)} biases that the map lacks are zero: {safe_repr(absent)}"
    return found, [note] if absent else []


def pattern_of(entry: StoredWeight) -> re.Pattern[str]:
    """Return the pattern of the names that a name with `{l}` and `{h}` stands for; group 1 is the layer."""
    numbered = re.escape(entry.name).replace(r"\{h\}", r"\d{1,9}")
    layer = r"(\d{1,9})"
    return re.compile(numbered.replace(r"\{l\}", layer, 1) if r"\{l\}" in numbered else f"{numbered}()")


def _stored(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the tensor of a name, or the stacked tensors [head, ...] of a name with `{h}`.

    Raises:
        ValueError: If the model has no such tensors.
    """
    names = [name.replace("{h}", str(k)) for k in range(len(tensors) if "{h}" in name else 1)]
    found = [tensors[one] for one in names if one in tensors]
    if len({one.shape for one in found}) != 1:
        raise ValueError(f"{safe_text(name)} is missing in the weights ({suggestion(name, list(tensors))})")
    if "{h}" in name:
        return torch.stack(found)
    return found[0].squeeze(0) if found[0].ndim == 3 else found[0]


def _in_heads(tensor: Tensor, kind: str, entry: StoredWeight, n_heads: Any) -> Tensor:
    """Separate the heads of a weight, and take its part of a fused matrix.

    Raises:
        ValueError: If the number of heads is not known, or does not divide the weight.
    """
    if kind[-1:] not in (*"QKVO",) or tensor.ndim != 1 + kind.startswith("W_") or kind == "b_O":
        return tensor
    check_number("n_heads, which config or the table [model] gives,", n_heads, minimum=1, integer=True)
    parts = 1 if entry.part is None else 3
    try:
        if kind == "W_O":
            return tensor.unflatten(0, (n_heads, -1))
        divided = tensor.unflatten(-1, (n_heads, parts, -1) if entry.per_head else (parts, n_heads, -1))
        return divided.select(-2 if entry.per_head else -3, entry.part or 0).movedim(-2, 0)
    except RuntimeError:
        raise ValueError(
            f"n_heads must divide {entry.name} of shape {list(tensor.shape)}"
            f"{', which has three parts' if parts > 1 else ''}, got {n_heads}. Correct n_heads or the map"
        ) from None


def bias_of(name: str) -> str:
    """Return the name of the bias of a matrix or norm."""
    return name.replace(".W_", ".b_") if ".W_" in name else f"{name[:-1]}b"
