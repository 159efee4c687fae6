"""What a forward pass of a module shows: the matrices of its output, and the fan-in of bare parameters."""

from __future__ import annotations

import contextlib
import copy
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_LARGEST = 2**26
"""The largest number of weights of a module that is run; a larger module shows nothing."""
_LONGEST = 1024
"""The largest number of tokens or features of an input that is tried."""
_PRODUCTS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "__matmul__"}
_SUMS = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_VIEWS = re.compile("(T|Transpose|Permute|View|UnsafeView|Expand|Unsqueeze)Backward0")


class Traced(NamedTuple):
    """What a forward pass shows of the parameters of a module."""

    heads: frozenset[str] = frozenset()
    """The matrices whose product is the output, if the module reads tokens."""
    fan_ins: Mapping[str, int] = {}
    """The number of inputs that each output of a parameter sums, or d_model for a table of vectors."""
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
    the same number of inputs, into matrix products, `einsum`, look-ups and sums with activations.
    """
    with contextlib.suppress(Exception), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # this is code of one's own
        if sum(parameter.numel() for parameter in model.parameters()) > _LARGEST:
            return Traced()
        run = copied(model).requires_grad_()
        names = {id(parameter): name for name, parameter in run.named_parameters()}
        for x in _inputs(run):
            with contextlib.suppress(Exception), torch.enable_grad(), _Products(run) as seen:
                output = run(x)
                output = output.get("logits") if type(output) is dict else output
                output = output if isinstance(output, Tensor) else output[0]
                heads = () if x.is_floating_point() else _matrices_before(output.grad_fn)
                fan_ins = {name: min(n) for name, n in seen.found.items() if len(n) == 1 and 0 not in n}
                return Traced(frozenset(names[id(one)] for one in heads), fan_ins, True)
    return Traced()


def _inputs(model: nn.Module) -> Iterator[Tensor]:
    """Yield sequences of tokens, then rows and sequences of numbers, of each size that a weight has."""
    sizes = sorted({size for one in model.parameters() for size in one.shape if size <= _LONGEST})
    for n in (4, *sizes):
        yield torch.zeros(2, n, dtype=torch.long, device="cpu")
    for shape in (shape for n in sizes for shape in ((2, n), (2, 4, n))):
        yield torch.randn(shape, device="cpu")


def _matrices_before(node: Any) -> list[Tensor]:
    """Return the matrices of the last product, or none if the output is a sum of several parts."""
    while node is not None:
        leaves = [(parent, _leaf(parent)) for parent, _ in node.next_functions if parent is not None]
        if matrices := [leaf for _, leaf in leaves if leaf is not None and leaf.dim() > 1]:
            return matrices
        others = [parent for parent, leaf in leaves if leaf is None]
        node = others[0] if len(others) == 1 else None
    return []


def _leaf(node: Any) -> Tensor | None:
    """Return the parameter that a node of the graph views, or None for a value that was computed."""
    while _VIEWS.fullmatch(type(node).__name__):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


class _Products(TorchFunctionMode):
    """Notes for each parameter the numbers of inputs that its products sum. Use it as a context manager."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: defaultdict[str, set[int]] = defaultdict(set)
        self._named = {_memory(one): (name, one) for name, one in model.named_parameters() if one.dim() > 1}
        self._results: dict[int, tuple[Tensor, str, int]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name == "sum" and id(args[0]) in self._results:  # heads that are summed after their products
            product, of, n = self._results[id(args[0])]
            self.found[of] = {n * product.numel() // result.numel()}
        for operand, n in _summed(name, (*args, *(kwargs or {}).values()), result):
            of, whole = self._named.get(_memory(operand), ("", operand))
            if of:
                self.found[of].add(n if operand.numel() == whole.numel() or name in _SUMS else 0)
                self._results[id(result)] = result, of, n
        return result


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _summed(name: str, args: Any, result: Any) -> list[tuple[Tensor, int]]:
    """Return operands of a function, each with the number of its entries that an output sums."""
    if name == "einsum" and isinstance(args[0], str) and "." not in args[0]:
        terms, arrow, kept = args[0].replace(" ", "").partition("->")
        kept = kept if arrow else [axis for axis, times in Counter(terms).items() if times == 1]
        operands = zip(terms.split(","), args[1:] if isinstance(args[1], Tensor) else args[1], strict=True)
        return [
            (x, math.prod(x.shape[k] for k, axis in enumerate(term) if axis not in kept))
            for term, x in operands
        ]
    if name in _PRODUCTS:
        return [(x, x.shape[axis]) for x, axis in ((args[-2], -1), (args[-1], -min(2, args[-1].dim())))]
    if name in ("linear", "embedding"):
        return [(args[1], args[1].shape[-1])]
    if name == "__getitem__" and isinstance(args[1], Tensor) and args[1].dtype == torch.long:
        return [(args[0], args[0].shape[-1])]
    tables = [x for x in args[:2] if name in _SUMS and isinstance(x, Tensor) and x.dim() > 1]
    return [(x, x.shape[-1]) for x in tables if x.shape != result.shape or 0 in x.stride()]
