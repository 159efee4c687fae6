"""Linear maps of K models at once, with the matrix products that are fastest where they run.

On CUDA and in float64 they are torch's batched products. In float32 on the CPU too if the processor is
Intel's: there torch's products are MKL's, and fastest. On other processors MKL leaves AVX-512 unused, and
oneDNN, which torch ships too, does not (2.2 times as fast on an AMD EPYC, docs/speed.md). Its products are
reached through the operator that `torch.compile` emits for linear layers and through the weight gradient of
a 1 x 1 convolution.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    Rows = Float[Tensor, "member row d_in"]
    Weight = Float[Tensor, "member d_in d_out"]
    Bias = Float[Tensor, "member d_out"]
    Mapped = Float[Tensor, "member row d_out"]

_LONG = 1024
"""Rows from which the weight gradient is a convolution's: it reads its operands as they lie, where the
linear operator first transposes one, but it costs more to set up."""
_CONVOLUTION_BATCH = 16
"""Smallest batch for which torch leaves a convolution on one thread to oneDNN."""


def linear(x: Rows, weight: Weight, bias: Bias | None, *, bf16: bool = False) -> Mapped:
    """The linear map x @ weight + bias of each member.

    Args:
        x: [member, row, d_in].
        weight: [member, d_in, d_out].
        bias: [member, d_out], or None.
        bf16: round operands and result of every product to bfloat16; it sums in float32.

    Returns:
        [member, row, d_out], differentiable in all three.
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


def uses_onednn(x: Tensor) -> bool:
    """Whether the products of such a tensor go to oneDNN."""
    fastest = torch.backends.mkldnn.is_available() and not _mkl_on_intel()
    return x.device.type == "cpu" and x.dtype == torch.float32 and fastest


@functools.cache
def _mkl_on_intel() -> bool:
    """Whether torch's own products are MKL's and the processor is Intel's."""
    return torch.backends.mkl.is_available() and "GenuineIntel" in _processor(Path("/proc/cpuinfo"))


def _processor(info: Path) -> str:
    """What the system says of its processor: Linux's file, elsewhere what Python knows."""
    try:
        return info.read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()


def _product(a: Tensor, b: Tensor, bias: Tensor | None, bf16: bool) -> Tensor:
    """The products a [member, m, n] @ b [member, n, p], and bias [member, p] on top."""
    if bf16:
        product = torch.bmm(a.bfloat16(), b.bfloat16()).float()
        return product if bias is None else product + bias.unsqueeze(1)
    if not uses_onednn(a):
        return torch.bmm(a, b) if bias is None else torch.baddbmm(bias.unsqueeze(1), a, b)
    biases = [None] * len(a) if bias is None else bias.unbind()
    return _stacked([_onednn(*operands) for operands in zip(a.unbind(), b.unbind(), biases, strict=True)])


def _onednn(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """The product a [m, n] @ b [n, p], and bias [p] on top."""
    if not (b.is_contiguous() or b.mT.is_contiguous()):
        b = b.contiguous()  # of other strides oneDNN has a slow reference product only
    return torch.ops.mkldnn._linear_pointwise(a, b.mT, bias, "none", [], "")


def _weight_gradient(x: Tensor, grad: Tensor, bf16: bool) -> Tensor:
    """x^T @ grad: [member, d_in, d_out] from [member, row, d_in] and [member, row, d_out]."""
    rows = x.shape[1]
    if bf16 or not uses_onednn(x):
        return _product(x.mT, grad, None, bf16)
    by_convolution = rows >= _LONG and rows % _CONVOLUTION_BATCH == 0
    single = _convolution_gradient if by_convolution else _transposed_product
    return _stacked([single(*operands) for operands in zip(x.unbind(), grad.unbind(), strict=True)])


def _transposed_product(x: Tensor, grad: Tensor) -> Tensor:
    """x^T @ grad; oneDNN wants its first operand as rows, so the narrower of the two is transposed."""
    if x.shape[1] <= grad.shape[1]:
        return _onednn(x.mT, grad, None)
    return _onednn(grad.mT, x, None).mT


def _convolution_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """x^T @ grad as the weight gradient of a 1 x 1 convolution from `grad`'s channels to `x`'s."""
    weight = x.new_empty(1).expand(x.shape[1], grad.shape[1], 1, 1)  # only its shape is read
    gradient = torch.ops.aten.convolution_backward(
        _as_image(x), _as_image(grad), weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [False, True, False],
    )[1]  # fmt: skip
    return gradient.flatten(1)


def _as_image(rows: Tensor) -> Tensor:
    """The same memory as a channels-last image [_CONVOLUTION_BATCH, channels, height, 1]."""
    return rows.view(_CONVOLUTION_BATCH, -1, 1, rows.shape[1]).permute(0, 3, 1, 2)


def _stacked(members: list[Tensor]) -> Tensor:
    return members[0].unsqueeze(0) if len(members) == 1 else torch.stack(members)
