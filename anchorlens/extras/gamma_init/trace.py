"""What a forward pass of a module shows: the matrix of its output, and the fan-in of bare parameters."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_LARGEST = 2**26
"""The largest number of weights of a module that is run; a larger module shows nothing."""
_LONGEST = 1024
"""The largest number of tokens or features of an input that is tried."""
_PRODUCTS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "__matmul__"}


class Traced(NamedTuple):
    """What a forward pass shows of the parameters of a module."""

    head: str = ""
    """The matrix whose product is the output, if the module reads tokens."""
    fan_ins: Mapping[str, int] = {}
    """The number of inputs that each output of a parameter sums."""
    ran: bool = False
    """Whether the module took one of the inputs that were tried."""


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the CPU, in evaluation mode and without hooks, to be run."""
    module = copy.deepcopy(module).to(device="cpu", dtype=torch.float32).eval()
    for inner in module.modules():
        inner._forward_hooks.clear()
        inner._forward_pre_hooks.clear()
    return module


def traced(model: nn.Module) -> Traced:
    """Run a copy of a module on inputs that fit its shapes, until it takes one.

    The module and the random state do not change. A parameter has a fan-in if it goes whole, and always with
    the same number of inputs, into matrix products and `einsum`.
    """
    with contextlib.suppress(Exception), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # this is code of one's own
        if sum(parameter.numel() for parameter in model.parameters()) > _LARGEST:
            return Traced()
        run = copied(model)
        for x in _inputs(run):
            with contextlib.suppress(Exception), torch.no_grad(), _Products(run) as seen:
                output = run(x)
                output = output.get("logits", output) if type(output) is dict else output
                output = output if isinstance(output, Tensor) else output[0]
                _, head, _ = seen.made.get(_memory(output), (None, "", 0))
                fan_ins = {name: min(n) for name, n in seen.found.items() if len(n) == 1 and 0 not in n}
                return Traced("" if x.is_floating_point() else head, fan_ins, True)
    return Traced()


def _inputs(model: nn.Module) -> Iterator[Tensor]:
    """Yield sequences of tokens, then rows and sequences of numbers, of each size that a weight has."""
    sizes = sorted({size for one in model.parameters() for size in one.shape if size <= _LONGEST})
    for n in (4, *sizes):
        yield torch.zeros(2, n, dtype=torch.long, device="cpu")
    for shape in (shape for n in sizes for shape in ((2, n), (2, 4, n))):
        yield torch.randn(shape, device="cpu")


class _Products(TorchFunctionMode):
    """Notes for each parameter the numbers of inputs that its products sum. Use it as a context manager.

    `made` has each product with its parameter, and what functions of one activation make of it. It keeps the
    tensors, so that no other tensor takes their memory.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: defaultdict[str, set[int]] = defaultdict(set)
        self.made: dict[int, tuple[Tensor, str, int]] = {}
        self._named = {_memory(one): (name, one) for name, one in model.named_parameters()}

    def __torch_function__(self, func, types, args=(), kwargs=None):  # pyright: ignore
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if not isinstance(result, Tensor):
            return result
        args = (*args, *(kwargs or {}).values())
        places = {_memory(x) for x in args if isinstance(x, Tensor)} - self._named.keys()
        before = self.made.get(places.pop()) if len(places) == 1 else None
        self.made.pop(_memory(result), None)  # an operation in place
        if before is not None:
            product, of, n = before
            if name == "sum":  # heads that are summed after their products
                self.found[of] = {n * product.numel() // result.numel()}
            self.made[_memory(result)] = result, of, n
        for operand, n in _summed(name, args):
            of, whole = self._named.get(_memory(operand), ("", operand))
            if of and whole.dim() > 1:
                self.found[of].add(n if operand.numel() == whole.numel() else 0)
                self.made[_memory(result)] = result, of, n
        return result


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _summed(name: str, args: Sequence[Any]) -> list[tuple[Tensor, int]]:
    """Return operands of a function, each with the number of its entries that an output sums."""
    if name == "einsum" and isinstance(args[0], str) and "." not in args[0]:
        terms, arrow, kept = args[0].replace(" ", "").partition("->")
        kept = kept if arrow else [axis for axis, times in Counter(terms).items() if times == 1]
        pairs = zip(terms.split(","), args[1:] if isinstance(args[1], Tensor) else args[1], strict=True)
        return [
            (x, math.prod(n for n, c in zip(x.shape, term, strict=True) if c not in kept))
            for term, x in pairs
        ]
    if name in _PRODUCTS:
        return [(x, x.shape[axis]) for x, axis in ((args[-2], -1), (args[-1], -min(2, args[-1].dim())))]
    return [(args[1], args[1].shape[-1])] if name == "linear" else []
