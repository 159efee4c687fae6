"""Attention over short sequences: one product for the scores, one softmax, one mix.

torch's fused kernels are made for long sequences. On nine tokens the plain products are the faster way on a
CPU; a softmax over nine numbers is left to element-wise operations, as torch's own goes row by row.
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
"""Sequences times heads that a CUDA kernel takes at once."""


def attention(q: Queries, kv: KeysValues) -> Queries:
    """softmax(q k^T / sqrt(d_head)) v for each head, each query seeing the positions up to its own.

    Args:
        q: [sequence, query, head_index, d_head]; the queries are those of the last positions.
        kv: keys beside values, [sequence, pos, 2, head_index, d_head].

    Returns:
        The mixed values, as q.
    """
    if q.device.type == "cpu":
        return _Attention.apply(q, kv)  # pyright: ignore[reportReturnType]
    at_once = max(1, _LARGEST_GRID // q.shape[2])
    if len(q) <= at_once:
        return _fused(q, kv)
    parts = zip(q.split(at_once), kv.split(at_once), strict=True)
    return torch.cat([_fused(q, kv) for q, kv in parts])


def _fused(q: Queries, kv: KeysValues) -> Queries:
    """The same by torch's fused kernel, which wants heads before positions."""
    heads_first, k, v = (x.transpose(1, 2) for x in (q, *kv.unbind(2)))
    n_queries, n_pos = q.shape[1], kv.shape[1]
    seen = None
    if 1 < n_queries < n_pos:
        seen = q.new_ones(n_queries, n_pos, dtype=torch.bool).tril(n_pos - n_queries)
    return functional.scaled_dot_product_attention(
        heads_first, k, v, attn_mask=seen, is_causal=1 < n_queries == n_pos
    ).transpose(1, 2)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Queries, kv: KeysValues) -> Queries:
        scale = 1 / math.sqrt(q.shape[-1])
        n_queries, n_pos = q.shape[1], kv.shape[1]
        mask = q.new_zeros(1)
        if n_queries > 1:
            mask = q.new_full((n_queries, n_pos), -math.inf).triu(n_pos - n_queries + 1)
        mixed, patterns = torch.empty_like(q), []
        for head in range(q.shape[2]):
            k, v = kv[:, :, 0, head], kv[:, :, 1, head]
            scores = torch.baddbmm(mask, q[:, :, head], k.mT, alpha=scale)
            scores -= scores.amax(dim=-1, keepdim=True)
            pattern = scores.exp_()
            pattern /= pattern.sum(dim=-1, keepdim=True)
            torch.bmm(pattern, v, out=mixed[:, :, head])
            patterns.append(pattern)
        ctx.save_for_backward(q, kv, *patterns)
        ctx.scale = scale
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        q, kv, *patterns = ctx.saved_tensors
        grad_q, grad_kv = torch.empty_like(q), torch.empty_like(kv)
        for head, pattern in enumerate(patterns):
            grad_head, k, v = grad[:, :, head], kv[:, :, 0, head], kv[:, :, 1, head]
            grad_pattern = torch.bmm(grad_head, v.mT)
            grad_pattern -= (grad_pattern * pattern).sum(dim=-1, keepdim=True)
            grad_scores = grad_pattern.mul_(pattern).mul_(ctx.scale)
            torch.bmm(grad_scores, k, out=grad_q[:, :, head])
            grad_kv[:, :, 0, head] = torch.bmm(grad_scores.mT, q[:, :, head])
            grad_kv[:, :, 1, head] = torch.bmm(pattern.mT, grad_head)
        return grad_q, grad_kv
