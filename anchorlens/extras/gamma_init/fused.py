"""Matrices that hold queries, keys and values: the owner of each row, by the module that reads the rows.

All layouts here are groups of rows, each with queries and keys first and values last: one group in GPT-2, one
for each head in GPT-NeoX. The layouts of Hugging Face are known by class and configuration. Any other
attention of three equal parts is run: without its values, its output must not depend on its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anchorlens.extras.gamma_init.trace import copied


class FusedRows(NamedTuple):
    """The layout of a matrix that fuses queries, keys and values, along the output axis of the matrix."""

    groups: int
    """The number of groups of queries, keys and values: 1, or the number of (key and value) heads."""
    values: int
    """The number of rows of values, the last of each group."""


def _of_falcon(module: Any, rows: int) -> FusedRows:
    one = 1 if module.multi_query else module.num_heads
    return FusedRows(module.num_kv_heads if module.new_decoder_architecture else one, module.head_dim)


_KNOWN: Mapping[str, tuple[str, Callable[[Any, int], FusedRows]]] = {
    "GPT2Attention": ("c_attn", lambda m, n: FusedRows(1, n // (2 if m.is_cross_attention else 3))),
    "GPTBigCodeAttention": (
        "c_attn",
        lambda m, n: FusedRows(1 if m.multi_query else m.num_heads, m.head_dim),
    ),
    "GPTNeoXAttention": ("query_key_value", lambda m, n: FusedRows(n // (3 * m.head_size), m.head_size)),
    "BloomAttention": ("query_key_value", lambda m, n: FusedRows(m.num_heads, m.head_dim)),
    "FalconAttention": ("query_key_value", _of_falcon),
    "Phi3Attention": ("qkv_proj", lambda m, n: FusedRows(1, m.config.num_key_value_heads * m.head_dim)),
}
"""A map from a class of Hugging Face's transformers to its fused matrix and the function of its layout."""
_LARGEST = 8
"""The largest ratio of an attention's weights to its fused matrix at which a custom attention is run."""
_N_TOKENS = 4


def known_class(attention: nn.Module | None) -> str | None:
    """Return the class in Hugging Face of an attention with a fused matrix of a known layout, or `None`."""
    names = [cls.__name__ for cls in type(attention).__mro__ if cls.__name__ in _KNOWN]
    return names[0] if names and type(attention).__module__.startswith("transformers.") else None


def layout_of(attention: nn.Module | None, name: str, weight: Tensor, axis: int) -> FusedRows | None:
    """Return the layout of a fused matrix in an attention module, or `None` if the layout is unknown.

    Args:
        attention: the module that contains the matrix, either directly or in a Linear.
        name: the name of the Linear or the matrix in the attention module.
        weight: the matrix.
        axis: the output axis of the matrix.
    """
    if attention is None:
        return None
    rows, fan_in = weight.shape[axis], weight.shape[1 - axis]
    if isinstance(attention, nn.MultiheadAttention):
        return FusedRows(1, rows // 3) if name == "in_proj_weight" else None
    if (known := known_class(attention)) is not None:
        fused, layout = _KNOWN[known]
        if name != fused or (known == "GPTBigCodeAttention" and attention.is_cross_attention):
            return None
        return layout(attention, rows)
    n_weights = sum(parameter.numel() for parameter in attention.parameters())
    if rows != 3 * fan_in or n_weights > _LARGEST * weight.numel():
        return None
    heads = {getattr(attention, count, None) for count in ("n_head", "n_heads", "num_heads", "heads")}
    counts = [1, *(n for n in heads if isinstance(n, int) and n > 1 and fan_in % n == 0)]
    layouts = [FusedRows(n, fan_in // n) for n in counts]
    return next((layout for layout in layouts if _are_the_values(attention, name, axis, layout)), None)


def _are_the_values(attention: nn.Module, name: str, axis: int, layout: FusedRows) -> bool:
    """Return whether the attention's output depends on its input only with these rows."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            attention = copied(attention)
            for parameter in attention.parameters():
                size = parameter.shape[-1] ** -0.5
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator, device="cpu"))
            fused = attention.get_submodule(name)
            width = int(fused.weight.shape[1 - axis])  # pyright: ignore
            x = torch.randn(2, _N_TOKENS, width, generator=generator, device="cpu")
            depends = _differ(attention(x))
            if isinstance(bias := getattr(fused, "bias", None), Tensor):
                bias.zero_()
            values_in(fused.weight, axis, layout)[1].zero_()  # pyright: ignore
            return depends and not _differ(attention(x))
    except Exception:  # whatever code of one's own raises
        return False


def _differ(output: Any) -> bool:
    first = output[0] if isinstance(output, tuple) else output
    return float((first[0] - first[1]).abs().max()) > 1e-5


def values_in(weight: Tensor, axis: int, layout: FusedRows) -> tuple[Tensor, Tensor]:
    """Return two views of a fused matrix: the queries with the keys, and the values."""
    rows = weight.shape[axis] // layout.groups
    if layout.groups > 1:
        weight, axis = weight.unflatten(axis, (layout.groups, rows)), axis + 1
    queries_and_keys, values = weight.split((rows - layout.values, layout.values), dim=axis)
    return queries_and_keys, values
