"""Linear maps by either library: the same products and gradients."""

import pytest
import torch

from anchorlens.models.stacked import linear as module
from anchorlens.models.stacked.linear import linear


@pytest.fixture(params=[True, False], ids=["MKL", "oneDNN"])
def at_home(request, monkeypatch):
    monkeypatch.setattr(module, "_mkl_is_at_home", lambda: request.param)


@pytest.mark.parametrize("rows", [10, 1024, 1030])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("biased", [True, False])
def test_products_and_gradients_are_those_of_float64(at_home, rows, members, biased):
    generator = torch.Generator().manual_seed(0)
    shapes = [(members, rows, 24), (members, 24, 40), *([(members, 40)] if biased else [])]
    operands = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    grad = torch.randn(members, rows, 40, generator=generator, dtype=torch.float64)

    def found(dtype):
        given = [one.to(dtype).requires_grad_() for one in operands]
        product = linear(*given, *([] if biased else [None]))
        product.backward(grad.to(dtype))
        return [product.detach().double(), *(one.grad.double() for one in given)]

    for mine, exact in zip(found(torch.float32), found(torch.float64), strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-4, atol=1e-3)


def test_the_processor_is_looked_up_once():
    assert module._mkl_is_at_home() is module._mkl_is_at_home()
    assert isinstance(module._mkl_is_at_home(), bool)
