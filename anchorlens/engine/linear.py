"""Linear maps of K models at once, with the fastest matrix products of the device.

On CUDA and in float64 these are torch's batched products; in float32 on the CPU those of `kernels`, where
they are faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlens.engine.kernels import product, uses_onednn, weight_gradient

if TYPE_CHECKING:
    from jaxtyping import Float

    Rows = Float[Tensor, "member row d_in"]
    Weight = Float[Tensor, "member d_in d_out"]
    Bias = Float[Tensor, "member d_out"]
    Mapped = Float[Tensor, "member row d_out"]


def linear(x: Rows, weight: Weight, bias: Bias | None, *, bf16: bool = False) -> Mapped:
    """Compute x @ weight + bias for each model of a stack.

    Args:
        x: the inputs, [member, row, d_in].
        weight: the weights, [member, d_in, d_out].
        bias: the biases, [member, d_out], or None.
        bf16: whether to round the operands and results of matrix products to bfloat16. Sums are in float32.

    Returns:
        The outputs, [member, row, d_out], with gradients for `x`, `weight` and `bias`.
    """
    return _Linear.apply(x, weight, bias, bf16)  # pyright: ignore[reportReturnType]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Rows, weight: Weight, bias: Bias | None, bf16: bool) -> Mapped:
        ctx.save_for_backward(x, weight)
        ctx.has_bias, ctx.bf16 = bias is not None, bf16
        return _product(x, weight, bias, bf16)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = _product(grad, weight.mT, None, ctx.bf16) if ctx.needs_input_grad[0] else None
        grad_bias = grad.sum(dim=1) if ctx.has_bias else None
        return grad_x, _weight_gradient(x, grad, ctx.bf16), grad_bias, None


def _product(a: Tensor, b: Tensor, bias: Tensor | None, bf16: bool) -> Tensor:
    """Compute the products a [member, m, n] @ b [member, n, p] plus bias [member, p]."""
    if bf16:
        rounded = torch.bmm(a.bfloat16(), b.bfloat16()).float()
        return rounded if bias is None else rounded + bias.unsqueeze(1)
    if not uses_onednn(a):
        return torch.bmm(a, b) if bias is None else torch.baddbmm(bias.unsqueeze(1), a, b)
    biases = [None] * len(a) if bias is None else bias.unbind()
    return _stacked([product(*operands) for operands in zip(a.unbind(), b.unbind(), biases, strict=True)])


def _weight_gradient(x: Tensor, grad: Tensor, bf16: bool) -> Tensor:
    """Compute x^T @ grad: [member, d_in, d_out] from [member, row, d_in] and [member, row, d_out]."""
    if bf16 or not uses_onednn(x):
        return _product(x.mT, grad, None, bf16)
    return _stacked([weight_gradient(*operands) for operands in zip(x.unbind(), grad.unbind(), strict=True)])


def _stacked(members: list[Tensor]) -> Tensor:
    return members[0].unsqueeze(0) if len(members) == 1 else torch.stack(members)
