"""The one file that names operators of torch's which it does not document, and what stands in for them.

In float32 on the CPU torch's own products are MKL's. On Intel's processors they are the fastest. On others
MKL leaves AVX-512 unused, and oneDNN, which torch ships too, does not (2.2 times as fast on an AMD EPYC,
docs/speed.md). Its products are reached through the operator that `torch.compile` emits for linear layers,
and through the weight gradient of a 1 x 1 convolution. Where this torch lacks one of these operators, or it
does not compute what is expected, torch's own products are taken.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LONG = 1024
"""Rows from which the weight gradient is a convolution's: it reads its operands as they lie, where the
linear operator first transposes one, but it costs more to set up."""
_CONVOLUTION_BATCH = 16
"""Smallest batch for which torch leaves a convolution on one thread to oneDNN."""


def uses_onednn(x: Tensor) -> bool:
    """Whether the products of such a tensor go to oneDNN."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not _mkl_on_intel() and _has_operators()


@functools.cache
def _has_operators() -> bool:
    """Whether this torch has the operators, and they compute what they are taken for."""
    try:
        a, b = torch.ones(2, 3, device="cpu"), torch.ones(3, 2, device="cpu")
        x, grad = (torch.ones(_CONVOLUTION_BATCH, n, device="cpu") for n in (3, 2))
        product_is_right = torch.backends.mkldnn.is_available() and (product(a, b, None) == 3).all()
        return bool(product_is_right and (_convolution_gradient(x, grad) == _CONVOLUTION_BATCH).all())
    except (AttributeError, NameError, RuntimeError, TypeError):
        return False


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


def product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """The product a [m, n] @ b [n, p], and bias [p] on top, by oneDNN."""
    if not (b.is_contiguous() or b.mT.is_contiguous()):
        b = b.contiguous()  # of other strides oneDNN has a slow reference product only
    return torch.ops.mkldnn._linear_pointwise(a, b.mT, bias, "none", [], "")


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """x^T @ grad: [d_in, d_out] from [row, d_in] and [row, d_out], by oneDNN."""
    if len(x) >= _LONG and len(x) % _CONVOLUTION_BATCH == 0:
        return _convolution_gradient(x, grad)
    if x.shape[1] <= grad.shape[1]:  # it wants its first operand as rows: the narrower one is transposed
        return product(x.mT, grad, None)
    return product(grad.mT, x, None).mT


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


def products_to_count() -> dict[Any, Callable[..., int]]:
    """Operator that torch does not count -> its floating point operations, from its operands' shapes."""
    if not _has_operators():
        return {}

    def linear(a: Any, weight: Any, *_: Any, **__: Any) -> int:
        n = 2 * weight[0]
        for length in a:
            n *= length
        return n

    return {torch.ops.mkldnn._linear_pointwise: linear}
