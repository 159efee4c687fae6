"""Linear maps by either library: the same products and gradients."""

import platform

import pytest
import torch

from anchorlens.engine import linear as module
from anchorlens.engine.linear import linear


@pytest.fixture(params=["MKL", "oneDNN", "no such operator", "another operator"])
def library(request, monkeypatch):
    monkeypatch.setattr(module, "_mkl_on_intel", lambda: request.param == "MKL")
    if request.param == "no such operator":
        monkeypatch.delattr(module, "product")
    if request.param == "another operator":
        monkeypatch.setattr(module, "product", lambda a, b, bias: a @ b + 1)
    module._has_operators.cache_clear()
    yield request.param
    module._has_operators.cache_clear()


def test_the_fallback_is_chosen_by_itself(library):
    x = torch.zeros(1, 2, 3)
    assert module.uses_onednn(x) is (library == "oneDNN" and torch.backends.mkldnn.is_available())
    assert not module.uses_onednn(x.double()) and not module.uses_onednn(x.to("meta"))
    assert bool(module.products_to_count()) is (library in ("oneDNN", "MKL"))


@pytest.mark.parametrize("rows", [10, 1024, 1030])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("biased", [True, False])
def test_products_and_gradients_are_those_of_float64(library, rows, members, biased):
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


@pytest.mark.parametrize(
    ("said", "mkl", "chosen"),
    [
        ("vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)", True, True),
        ("vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)", False, False),
        ("vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC", True, False),
        ("", True, False),
    ],
)
def test_mkl_is_chosen_where_it_is_and_the_processor_is_intels(monkeypatch, said, mkl, chosen):
    monkeypatch.setattr(module, "_processor", lambda info: said)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert module._mkl_on_intel.__wrapped__() is chosen


def test_the_processor_by_its_file_and_without(tmp_path):
    (tmp_path / "cpuinfo").write_bytes(b"vendor_id\t: GenuineIntel\xff\n")
    assert "GenuineIntel" in module._processor(tmp_path / "cpuinfo")
    assert module._processor(tmp_path / "none") == platform.processor()
