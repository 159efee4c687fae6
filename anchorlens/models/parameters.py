"""Classify the parameters of any torch model: weight matrices with their fan-in, biases, norm weights.

Those of a HookedTransformer are known by name (`gamma.py`), those of other models by their module:

| module                        | weight                | fan-in                      |
|-------------------------------|-----------------------|-----------------------------|
| Embedding, EmbeddingBag       | [n, d_model]          | d_model                     |
| Linear                        | [out, in]             | in                          |
| Hugging Face's Conv1D         | [in, out]             | in                          |
| Conv1d, Conv2d, Conv3d        | [out, in / groups, k] | in / groups * k             |
| MultiheadAttention            | [3 d_model, d_model]  | d_model (kdim, vdim if own) |
| LayerNorm, RMSNorm, GroupNorm | [d]                   | none: it starts at 1        |

Their biases start at 0. For a custom norm, a test finds the weight that gives its output size 1.
"""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from anchorlens.configuration import check_number, suggestion
from anchorlens.models.config import Part
from anchorlens.models.gamma import expert_of, is_bias_or_norm, matrices, without_a_draw, writes_to_residual
from anchorlens.safe import safe_repr

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WEIGHTS_OF_NORMS, _BIASES_OF_NORMS = ("weight", "w", "scale", "gamma", "g"), ("bias", "b", "beta")

_PARTS: dict[str, Part] = {
    **dict.fromkeys(("q_proj", "k_proj", "c_q", "c_k"), "qk"),
    **dict.fromkeys(("v_proj", "o_proj", "out_proj", "c_v"), "vo"),
    **dict.fromkeys(("c_fc", "fc1", "fc2", "linear1", "linear2", "gate_proj", "up_proj", "down_proj"), "mlp"),
    **dict.fromkeys(("lm_head", "head"), "embedding"),
}
"""Name of a Linear or Conv1D in common GPT implementations -> its part."""
_PARTS_OF_C_PROJ: dict[str, Part] = {"attn": "vo", "mlp": "mlp"}
"""GPT-2 calls two matrices c_proj: the module they are in tells them apart."""
_WRITERS = ("c_proj", "o_proj", "out_proj", "fc2", "linear2", "down_proj")
"""Names of the matrices that write to the residual stream."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight matrix; or of one that holds queries, keys and values, either the first two or the last."""

    names: tuple[str, ...]
    """Names of its parameter; several where it is tied."""
    parameter: Tensor
    """The whole parameter."""
    fan_in: int
    """Inputs of the linear map (d_model for the embeddings)."""
    part: Part | None = None
    """Embedding, qk, vo or mlp; None where the model does not tell."""
    expert: int | None = None
    """Index of the expert, in a HookedTransformer's mixture; else None."""
    writes: bool = False
    """Whether it writes to the residual stream."""
    within: tuple[int, int, int] | None = None
    """(axis, start, size) of a part of the parameter; None for the whole."""
    zero_row: int | None = None
    """The padding row of an embedding, which stays 0."""

    @property
    def label(self) -> str:
        """The name of its parameter, and which part of it."""
        part = "" if self.within is None else "[v]" if self.part == "vo" else "[q, k]"
        return self.names[0] + part

    @property
    def values(self) -> Tensor:
        """What is drawn, a view of the parameter."""
        return self.parameter if self.within is None else self.parameter.narrow(*self.within)


@dataclass(frozen=True, eq=False)
class Parameters:
    """Every parameter of a model, each in one of three groups."""

    matrices: tuple[Matrix, ...]
    """In the order of drawing."""
    constants: tuple[tuple[str, Tensor, float], ...]
    """Biases and norm weights: name, parameter and initial value."""
    kept: tuple[str, ...]
    """Names of the parameters that the caller wants left as they are."""
    n_writers: int
    """Number of matrices that write to the residual stream, 2 n_layers in a GPT."""
    model: str
    """Name of the model's class."""


def parameters_of(model: Any, fan_in: Mapping[str, int | None] | None = None) -> Parameters:
    """Classify every parameter of a model.

    Args:
        model: a HookedTransformer or any torch module, also compiled or in a DataParallel.
        fan_in: name or pattern (`*.sinks`) of parameters -> their fan-in, or None to leave them as they are.

    Raises:
        ValueError: no such model, quantised or sharded weights, a name that matches nothing, or a parameter
            whose fan-in is not certain.
    """
    from anchorlens.models.library import HookedTransformer

    model = _unwrapped(model)
    owners: dict[int, list[tuple[str, nn.Module, str]]] = {}
    tensors: dict[str, Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if type(module).__module__.startswith("torch.ao.nn.quantized"):
            raise ValueError(f"model must not be quantised, got {path} ({type(module).__name__}); {_BEFORE}")
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{path}.{own}".removeprefix(".")
            owners.setdefault(id(parameter), []).append((name, module, own))
            tensors.setdefault(name, parameter)
    if not tensors:
        raise ValueError(f"model must have parameters, got a {type(model).__name__} without any")
    asked = _fan_ins(fan_in or {}, list(tensors))
    hooked = {}
    if isinstance(model, HookedTransformer):
        hooked = matrices(len(model.blocks), model.cfg.num_experts)
    found: list[Matrix] = []
    constants: list[tuple[str, Tensor, float]] = []
    kept: list[str] = []
    for places in owners.values():
        names = tuple(name for name, _, _ in places)
        parameter = tensors[names[0]]
        _check_tensor(names[0], parameter)
        given = [asked[name] for name in names if name in asked]
        if None in given:
            kept.append(names[0])
            continue
        roles = [_role(*place, names, parameter, hooked) for place in places]
        if given:
            known = [role for role in roles if isinstance(role, Matrix)]
            found.append(replace(known[0] if known else Matrix(names, parameter, 1), fan_in=given[0]))
        elif None in roles:
            name, module, _ = places[roles.index(None)]
            example = {re.sub(r"\.\d+\.", ".*.", name): parameter.shape[-1:].numel()}
            raise ValueError(
                f"the fan-in of every matrix must be certain, got {name} {list(parameter.shape)} of a "
                f"{type(module).__name__}; give it, fan_in={example} for example, or None in the number's "
                "place to leave that parameter as it is"
            )
        elif isinstance(roles[0], float):
            constants.append((names[0], parameter, roles[0]))
        else:
            found.append(_agreeing([role for role in roles if isinstance(role, Matrix)]))
    order = {name: place for place, name in enumerate(hooked)}
    found = [part for matrix in found for part in _split(matrix)]
    found.sort(key=lambda matrix: order.get(matrix.names[0], len(order)))
    n_writers = sum(matrix.writes for matrix in found)
    if isinstance(model, HookedTransformer):
        n_writers = 2 * len(model.blocks)
    return Parameters(tuple(found), tuple(constants), tuple(kept), n_writers, type(model).__name__)


_BEFORE = "draw its weights before it is quantised or sharded"


def _unwrapped(model: Any) -> nn.Module:
    """The model within `torch.compile`, DataParallel and DistributedDataParallel.

    Raises:
        ValueError: no torch module, or a TransformerBridge, which keeps further copies of fused weights.
    """
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module) or isinstance(
        model, nn.DataParallel | nn.parallel.DistributedDataParallel
    ):
        model = inner if isinstance(inner, nn.Module) else model.module
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a HookedTransformer or a torch module, got {type(model).__name__}")
    if any(cls.__name__ == "TransformerBridge" for cls in type(model).__mro__):
        raise ValueError(
            "model must be a HookedTransformer or a torch module, got a TransformerBridge; draw the model "
            "that it wraps, before it is wrapped"
        )
    return model


def _check_tensor(name: str, parameter: Tensor) -> None:
    """Check that a parameter is an ordinary tensor of floating point.

    Raises:
        ValueError: it is not.
    """
    if isinstance(parameter, nn.UninitializedParameter):
        raise ValueError(f"every parameter must have a shape, got {name} of a lazy module; run a batch first")
    wraps_others = hasattr(parameter, "__tensor_flatten__")  # a DTensor, or one of torchao
    ordinary = parameter.layout == torch.strided and not wraps_others
    if not ordinary or parameter.dtype not in _DTYPES:
        what = "" if ordinary else f" ({type(parameter.data).__name__}, {parameter.layout})"
        raise ValueError(
            "every parameter must be an ordinary tensor of float16, bfloat16, float32 or float64, "
            f"got {name} of {parameter.dtype}{what}; {_BEFORE}"
        )


def _fan_ins(fan_in: Mapping[str, int | None], names: list[str]) -> dict[str, int | None]:
    """Parameter name -> what the caller gives for it; of several patterns that match, the last counts.

    Raises:
        ValueError: a name that matches nothing, or a value that is no fan-in.
    """
    if not isinstance(fan_in, Mapping):
        raise ValueError(f"fan_in must be a dict of names and numbers, got {safe_repr(fan_in)}")
    asked: dict[str, int | None] = {}
    for pattern, number in fan_in.items():
        fitting = fnmatch.filter(names, str(pattern))
        if not fitting:
            hint = suggestion(pattern, names[:20])
            raise ValueError(f"fan_in must name parameters of the model, got {safe_repr(pattern)}; {hint}")
        if number is not None:
            check_number(f"the fan-in of {pattern}", number, minimum=1, integer=True)
        asked |= dict.fromkeys(fitting, number)
    return asked


def _role(
    name: str,
    module: nn.Module,
    own: str,
    names: tuple[str, ...],
    parameter: Tensor,
    hooked: Mapping[str, tuple[Part, tuple[int, ...]]],
) -> Matrix | float | None:
    """A matrix, or the initial value of a bias or norm; None where neither is known."""
    shape = parameter.shape
    if name in hooked:
        part, axes = hooked[name]
        fan_in = torch.Size(shape[axis] for axis in axes).numel()
        writes = writes_to_residual(name)
        return Matrix(names, parameter, fan_in, part, expert_of(name), writes)
    if hooked and is_bias_or_norm(name):
        return without_a_draw(name)
    path = name.removesuffix(own).rstrip(".")
    linear = isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or _is_conv1d(module)
    match module, own:
        case nn.Embedding() | nn.EmbeddingBag(), "weight":
            return Matrix(names, parameter, shape[1], "embedding", zero_row=module.padding_idx)
        case nn.modules.conv._ConvTransposeNd(), "weight":
            return None
        case _, "weight" if linear:
            fan_in = shape[0] if _is_conv1d(module) else shape[1:].numel()
            writes = path.rpartition(".")[2] in _WRITERS
            return Matrix(names, parameter, fan_in, _part(path), writes=writes)
        case nn.MultiheadAttention(), "in_proj_weight":
            return Matrix(names, parameter, shape[1])
        case nn.MultiheadAttention(), "q_proj_weight" | "k_proj_weight" | "v_proj_weight":
            return Matrix(names, parameter, shape[1], "vo" if own == "v_proj_weight" else "qk")
        case nn.MultiheadAttention(), "in_proj_bias":
            return 0.0
        case _, "bias" if linear:
            return 0.0
        case nn.LayerNorm() | nn.RMSNorm() | nn.GroupNorm(), _:
            return float(own == "weight")
        case _:
            return _start_of_own_norm(module, own)


def _is_conv1d(module: nn.Module) -> bool:
    """Whether it is Hugging Face's Linear with a weight of [in, out], or a copy of it."""
    weight = getattr(module, "weight", None)
    named = any(cls.__name__ == "Conv1D" for cls in type(module).__mro__)
    return named and isinstance(weight, Tensor) and getattr(module, "nf", None) == weight.shape[-1]


def _part(path: str) -> Part | None:
    """The part of a Linear, by its name and that of the module around it.

    >>> _part("h.0.attn.c_proj"), _part("h.0.mlp.c_proj"), _part("layers.1.self_attn.q_proj"), _part("x")
    ('vo', 'mlp', 'qk', None)
    """
    *_, around, last = "", "", *path.split(".")
    return _PARTS_OF_C_PROJ.get(around) if last == "c_proj" else _PARTS.get(last)


def _start_of_own_norm(module: nn.Module, own: str) -> float | None:
    """The initial value of a parameter of a custom norm; None where the module is no norm.

    nanoGPT and Llama multiply by the weight, Gemma by 1 + weight. So the norm is tested: with weight 1 (or
    else 0) and bias 0, its output vectors must have root mean square 1.
    """
    parameters = dict(module.named_parameters(recurse=False))
    weights = [name for name in parameters if name in _WEIGHTS_OF_NORMS]
    others = parameters.keys() - {*weights, *_BIASES_OF_NORMS}
    plain = not others and not [*module.children()] and not [*module.buffers(recurse=False)]
    sizes = {tuple(parameter.shape) for parameter in parameters.values()}
    if not plain or len(weights) != 1 or len(sizes) != 1 or len(*sizes) != 1:
        return None
    generator = torch.Generator(device="cpu").manual_seed(0)
    x = 3 * torch.randn(4, *sizes.pop(), generator=generator, device="cpu") + 1
    for start in (1.0, 0.0):
        asked = copy.copy(module)  # hooks and parameters of the module itself are not touched
        asked._parameters = dict(module._parameters)
        for name in parameters:
            values = torch.full_like(x[0], start if name in weights else 0)
            asked._parameters[name] = nn.Parameter(values, requires_grad=False)
        try:
            size = asked.forward(x).square().mean(-1).sqrt()
        except Exception:
            return None
        if size.shape == x.shape[:1] and (size - 1).abs().max() < 0.02:
            return start if own in weights else 0.0
    return None


def _agreeing(roles: list[Matrix]) -> Matrix:
    """One of the roles of a tied matrix, the embedding if there is one; all must have the same fan-in.

    Raises:
        ValueError: they differ.
    """
    first = next((role for role in roles if role.part == "embedding"), roles[0])
    if other := [role for role in roles if role.fan_in != first.fan_in]:
        raise ValueError(
            f"tied matrices must have one fan-in, got {first.fan_in} and {other[0].fan_in} of "
            f"{' and '.join(first.names)}; say which counts, fan_in={{{first.names[0]!r}: {first.fan_in}}} "
            "for example"
        )
    return replace(first, writes=any(role.writes for role in roles))


def _split(matrix: Matrix) -> Iterator[Matrix]:
    """Split a matrix that holds queries, keys and values (GPT-2's c_attn, torch's in_proj); yield others."""
    module, _, own = matrix.names[0].rpartition(".")
    shape = matrix.parameter.shape
    if own == "in_proj_weight":
        axis = 0
    elif module.rpartition(".")[2] == "c_attn" and 3 * matrix.fan_in == max(shape):
        axis = shape.index(max(shape))
    else:
        yield matrix
        return
    third = shape[axis] // 3
    yield replace(matrix, part="qk", within=(axis, 0, 2 * third))
    yield replace(matrix, part="vo", within=(axis, 2 * third, third))
