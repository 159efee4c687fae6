"""Attention over short sequences: one product for the scores, one softmax, one mix.

torch's fused kernels are made for long sequences. On nine tokens plain matrix products are faster on a CPU,
and so is a softmax of element-wise operations, since torch's softmax works row by row. On sequences of some
hundred tokens queries are processed in blocks, and the positions after a block are skipped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from jaxtyping import Float

    Queries = Float[Tensor, "sequence query head_index d_head"]
    KeysValues = Float[Tensor, "sequence pos 2 head_index d_head"]

_LARGEST_GRID = 65_535
"""Largest number of sequences times heads that one CUDA kernel launch takes."""
_BLOCK = 64
"""Queries in one block on a CPU."""


def attention(q: Queries, kv: KeysValues) -> Queries:
    """Compute the causal attention softmax(q k^T / sqrt(d_head)) v for each head.

    Args:
        q: the queries of the last positions, [sequence, query, head_index, d_head].
        kv: the keys and values, [sequence, pos, 2, head_index, d_head].

    Returns:
        The attention-weighted values, in the shape of `q`.
    """
    if q.device.type == "cpu":
        return _in_blocks(q, kv) if q.shape[1] > _BLOCK else _at_once(q, kv)
    at_once = max(1, _LARGEST_GRID // q.shape[2])
    if len(q) <= at_once:
        return _fused(q, kv)
    parts = zip(q.split(at_once), kv.split(at_once), strict=True)
    return torch.cat([_fused(q, kv) for q, kv in parts])


def _at_once(q: Queries, kv: KeysValues) -> Queries:
    return _Attention.apply(q, kv)  # pyright: ignore[reportReturnType]


def _in_blocks(q: Queries, kv: KeysValues) -> Queries:
    """Compute attention one block of queries at a time, each with the positions up to its last query."""
    before = kv.shape[1] - q.shape[1]
    blocks, end = [], 0
    for block in q.split(_BLOCK, dim=1):
        end += block.shape[1]
        blocks.append(_at_once(block, kv[:, : before + end]))
    return torch.cat(blocks, dim=1)


def _fused(q: Queries, kv: KeysValues) -> Queries:
    """Compute attention by torch's fused kernel, which needs the head axis before the position axis."""
    heads_first, k, v = (x.transpose(1, 2) for x in (q, *kv.unbind(2)))
    n_queries, n_pos = q.shape[1], kv.shape[1]
    seen = None
    if 1 < n_queries < n_pos:
        seen = q.new_ones(n_queries, n_pos, dtype=torch.bool).tril(n_pos - n_queries)
    return functional.scaled_dot_product_attention(
        heads_first, k, v, attn_mask=seen, is_causal=1 < n_queries == n_pos
    ).transpose(1, 2)


class _Attention(torch.autograd.Function):
    """Attention with all heads in one batched product, for which each head's rows are made contiguous."""

    @staticmethod
    def forward(ctx: Any, q: Queries, kv: KeysValues) -> Queries:
        scale = 1 / math.sqrt(q.shape[-1])
        n_queries, n_pos = q.shape[1], kv.shape[1]
        mask = q.new_zeros(1)
        if n_queries > 1:
            mask = q.new_full((n_queries, n_pos), -math.inf).triu(n_pos - n_queries + 1)
        rows = _by_head(q)  # [sequence * head_index, query, d_head]
        k, v = by_head = _by_head(kv)  # [2, sequence * head_index, pos, d_head]
        pattern = torch.baddbmm(mask, rows, k.mT, alpha=scale)
        pattern -= pattern.amax(dim=-1, keepdim=True)
        pattern = pattern.exp_()
        pattern /= pattern.sum(dim=-1, keepdim=True)
        ctx.save_for_backward(rows, by_head, pattern)
        ctx.n_heads, ctx.scale = q.shape[2], scale
        return _by_position(torch.bmm(pattern, v), ctx.n_heads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, by_head, pattern = ctx.saved_tensors
        grad = _by_head(grads[0])
        k, v = by_head
        grad_kv = torch.empty_like(by_head)
        grad_pattern = torch.bmm(grad, v.mT)
        grad_pattern -= (grad_pattern * pattern).sum(dim=-1, keepdim=True)
        grad_scores = grad_pattern.mul_(pattern).mul_(ctx.scale)
        grad_q = torch.bmm(grad_scores, k)
        torch.bmm(grad_scores.mT, rows, out=grad_kv[0])
        torch.bmm(pattern.mT, grad, out=grad_kv[1])
        return _by_position(grad_q, ctx.n_heads), _by_position(grad_kv, ctx.n_heads)


def _by_head(x: Tensor) -> Tensor:
    """Move [sequence, pos, (2,) head_index, d_head] to [(2,) sequence * head_index, pos, d_head]."""
    if x.dim() == 4:
        return x.transpose(1, 2).flatten(0, 1).contiguous()
    return x.permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous()


def _by_position(x: Tensor, n_heads: int) -> Tensor:
    """Invert `_by_head`."""
    if x.dim() == 3:
        return x.unflatten(0, (-1, n_heads)).transpose(1, 2)
    return x.unflatten(1, (-1, n_heads)).permute(1, 3, 0, 2, 4)
