"""Linear maps of K models at once, with the fastest matrix products of the device.

On CUDA and in float64 these are torch's batched products; in float32 on the CPU those of oneDNN, where they
are faster.

torch's float32 products on the CPU are MKL's, which are the fastest on Intel processors. On other processors
MKL does not use AVX-512, and oneDNN, which torch also ships, is faster (2.2 times on an AMD EPYC,
examples/benchmarks/README.md). oneDNN is called through the operator that `torch.compile` emits for linear
layers, and through the weight gradient of a 1 x 1 convolution. Where this torch lacks one of these operators,
or the operator does not compute what is expected, torch's own products are used. This is the only file that
uses
undocumented operators of torch.
"""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable, Sequence
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
"""From so many rows on the weight gradient is computed as a convolution's. The linear operator transposes one
operand first; the convolution does not, but costs more to set up."""
_CONVOLUTION_BATCH = 16
"""Smallest batch for which torch computes a convolution on one thread with oneDNN."""


def uses_onednn(x: Tensor) -> bool:
    """Return whether oneDNN computes the matrix products of a tensor with this device and dtype."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not _mkl_on_intel() and _has_operators()


@functools.cache
def _has_operators() -> bool:
    """Return whether this torch has the operators, and the operators give the expected results."""
    try:
        a, b = torch.ones(2, 3, device="cpu"), torch.ones(3, 2, device="cpu")
        x, grad = (torch.ones(_CONVOLUTION_BATCH, n, device="cpu") for n in (3, 2))
        product_is_right = torch.backends.mkldnn.is_available() and (product(a, b, None) == 3).all()
        return bool(product_is_right and (_convolution_gradient(x, grad) == _CONVOLUTION_BATCH).all())
    except (AttributeError, NameError, RuntimeError, TypeError):
        return False


@functools.cache
def _mkl_on_intel() -> bool:
    """Return whether torch's own products use MKL on an Intel processor."""
    return torch.backends.mkl.is_available() and "GenuineIntel" in _processor(Path("/proc/cpuinfo"))


def _processor(info: Path) -> str:
    """Return a description of the processor, from /proc/cpuinfo on Linux, else from `platform`."""
    try:
        return info.read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()


def product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a [m, n] @ b [n, p] plus bias [p] with oneDNN."""
    if not (b.is_contiguous() or b.mT.is_contiguous()):
        b = b.contiguous()  # for other strides oneDNN has only a slow reference product
    return torch.ops.mkldnn._linear_pointwise(a, b.mT, bias, "none", [], "")


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """Compute x^T @ grad, [d_in, d_out], with oneDNN."""
    if len(x) >= _LONG and len(x) % _CONVOLUTION_BATCH == 0:
        return _convolution_gradient(x, grad)
    if x.shape[1] <= grad.shape[1]:  # the first operand must be contiguous: transpose the narrower one
        return product(x.mT, grad, None)
    return product(grad.mT, x, None).mT


def _convolution_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """Compute x^T @ grad as the gradient of a 1 x 1 convolution from `grad`'s channels to `x`'s."""
    weight = x.new_empty(1).expand(x.shape[1], grad.shape[1], 1, 1)  # only its shape is read
    gradient = torch.ops.aten.convolution_backward(
        _as_image(x), _as_image(grad), weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [False, True, False],
    )[1]  # fmt: skip
    return gradient.flatten(1)


def _as_image(rows: Tensor) -> Tensor:
    """View the memory of `rows` as a channels-last image [_CONVOLUTION_BATCH, channels, height, 1]."""
    return rows.view(_CONVOLUTION_BATCH, -1, 1, rows.shape[1]).permute(0, 3, 1, 2)


def products_to_count() -> dict[Any, Callable[..., int]]:
    """Return a FLOP formula for each operator that torch's FLOP counter lacks."""
    if not _has_operators():
        return {}

    def linear(a: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
        return 2 * weight[0] * math.prod(a)

    return {torch.ops.mkldnn._linear_pointwise: linear}


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
