"""Classify the parameters of any torch model: weight matrices with their fan-in, biases, norm weights.

The parameters of a HookedTransformer are known by name (`gamma.py`), and of other models by their module:

| module                        | weight                | fan-in                      |
|-------------------------------|-----------------------|-----------------------------|
| Embedding, EmbeddingBag       | [n, d_model]          | d_model                     |
| Linear                        | [out, in]             | in                          |
| Hugging Face's Conv1D         | [in, out]             | in                          |
| Conv1d, Conv2d, Conv3d        | [out, in / groups, k] | in / groups * k             |
| MultiheadAttention            | [3 d_model, d_model]  | d_model (kdim, vdim if own) |
| torch's norms (BatchNorm too) | [d]                   | none: it starts at 1        |

| RNN, LSTM, GRU and their cells | [gates, in or hidden] | in or hidden                |

The biases of these modules start at 0. For a custom norm, a test finds the weight that gives its output size
1. `fused.py` determines which rows of a matrix are queries, keys and values. `trace.py` shows the head, and
the fan-in to advise for a bare parameter. `starts.py` finds the parameters that keep their values.
"""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anchorlens.configuration import check_number, suggestion
from anchorlens.extras.gamma_init.fused import known_class, layout_of, values_in
from anchorlens.extras.gamma_init.starts import ASKED, own_starts
from anchorlens.extras.gamma_init.trace import Traced, traced
from anchorlens.models import (
    Part,
    expert_of,
    is_bias,
    matrices,
    unwrapped,
    without_a_draw,
    writes_to_residual,
)
from anchorlens.texts import safe_repr

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WEIGHTS_OF_NORMS, _BIASES_OF_NORMS = ("weight", "w", "scale", "gamma", "g"), ("bias", "b", "beta")

_PARTS: dict[str, Part] = {
    **dict.fromkeys(("q_proj", "k_proj", "c_q", "c_k"), "qk"),
    **dict.fromkeys(("v_proj", "o_proj", "out_proj", "c_v"), "vo"),
    **dict.fromkeys(("c_fc", "fc1", "fc2", "linear1", "linear2", "gate_proj", "up_proj", "down_proj"), "mlp"),
    **dict.fromkeys(("gate_up_proj", "dense_h_to_4h", "dense_4h_to_h", "fc_in", "fc_out"), "mlp"),
    **dict.fromkeys(("lm_head", "head", "embed_out"), "embedding"),
}
"""A map from the name of a Linear or Conv1D in common GPT implementations to its part."""
_PARTS_OF_C_PROJ: dict[str, Part] = {"attn": "vo", "mlp": "mlp"}
"""The part of each GPT-2 matrix c_proj, by the module that contains it."""
_WRITERS = ("c_proj", "o_proj", "out_proj", "fc2", "linear2", "down_proj", "dense_4h_to_h", "fc_out")
"""The names of the matrices that write to the residual stream."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight matrix, or a part of a fused matrix: the queries and keys, or the values."""

    names: tuple[str, ...]
    """The names of its parameter; several if it is tied."""
    parameter: Tensor
    """The whole parameter."""
    fan_in: int
    """The number of inputs of the linear map (d_model for the embeddings)."""
    part: Part | None = None
    """The part: embedding, qk, vo or mlp; `None` if the model does not define it."""
    expert: int | None = None
    """The index of the expert in a HookedTransformer's mixture; else `None`."""
    writes: bool = False
    """Whether the matrix writes to the residual stream."""
    within: Tensor | None = None
    """A view of a part of the parameter; `None` for the whole."""
    zero_row: int | None = None
    """The padding row of an embedding, which stays 0."""

    @property
    def label(self) -> str:
        """The name of the parameter, with `[v]` or `[q, k]` for a part of the parameter."""
        part = "" if self.within is None else "[v]" if self.part == "vo" else "[q, k]"
        return self.names[0] + part

    @property
    def values(self) -> Tensor:
        """The values to draw: the whole parameter, or the view `within`."""
        return self.parameter if self.within is None else self.within


@dataclass(frozen=True, eq=False)
class Parameters:
    """The parameters of a model, each in one of three groups."""

    matrices: tuple[Matrix, ...]
    """The weight matrices, in the order of drawing."""
    constants: tuple[tuple[str, Tensor, float], ...]
    """The biases and norm weights: name, parameter and initial value."""
    kept: Mapping[str, str]
    """The names of the parameters that keep their values, each with the reason."""
    n_writers: int
    """The number of matrices that write to the residual stream, 2 n_layers in a GPT."""
    model: str
    """The name of the model's class."""


def parameters_of(model: object, fan_in: Mapping[str, int | None] | None = None) -> Parameters:
    """Classify every parameter of a model.

    Args:
        model: a HookedTransformer or any torch module. The model may be compiled or in a DataParallel.
        fan_in: a map from names or patterns (`*.sinks`) of parameters to their fan-in, or to `None` for
            parameters to keep.

    Raises:
        ValueError: If the type of the model is unknown. The weights must not be quantised or sharded. Every
            name in `fan_in` must match a parameter. The fan-in of every parameter must be known.
    """
    from anchorlens.models import HookedTransformer

    model = _drawable(model)
    owners: dict[int, list[tuple[str, nn.Module, str]]] = {}
    tensors: dict[str, Tensor] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, module in modules.items():
        if type(module).__module__.startswith("torch.ao.nn.quantized"):
            raise ValueError(f"model must not be quantised, got {path} ({type(module).__name__}). {_BEFORE}")
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{path}.{own}".removeprefix(".")
            owners.setdefault(id(parameter), []).append((name, module, own))
            tensors.setdefault(name, parameter)
    if not tensors:
        raise ValueError(
            f"model must have parameters, got a {type(model).__name__} without parameters. Give another model"
        )
    asked = _fan_ins(fan_in or {}, list(tensors))
    hooked, trace = {}, Traced()
    if isinstance(model, HookedTransformer):
        hooked = matrices(len(model.blocks), model.cfg.num_experts)
    else:
        trace = traced(model)
    roles: dict[tuple[str, ...], list[Matrix | float | None]] = {}
    for places in owners.values():
        names = tuple(name for name, _, _ in places)
        _check_tensor(names[0], tensors[names[0]])
        roles[names] = [_role(*place, names, tensors[names[0]], hooked, trace) for place in places]
    numbers = {names[0]: asked[name] for names in roles for name in names if asked.get(name)}
    first = {names[0]: (tensors[names[0]], known[0]) for names, known in roles.items()}
    kept = {name: why for name, why in own_starts(first, not hooked).items() if name not in numbers}
    kept |= {names[0]: ASKED for names in roles if None in [asked.get(name, 0) for name in names]}
    unknown = {name for names, known in roles.items() if None in known for name in names}
    found: list[Matrix] = []
    constants: list[tuple[str, Tensor, float]] = []
    for names, known in roles.items():
        parameter, of_matrix = tensors[names[0]], [role for role in known if isinstance(role, Matrix)]
        if names[0] in kept:
            continue
        if number := numbers.get(names[0]):
            part = "embedding" if names[0] == trace.head else None
            matrix = of_matrix[0] if of_matrix else Matrix(names, parameter, number, part)
            found.append(replace(matrix, fan_in=number))
        elif None in known:
            name, module, _ = owners[id(parameter)][known.index(None)]
            raise ValueError(_uncertain(name, module, parameter.shape, trace.fan_ins, unknown))
        elif isinstance(known[0], float):
            constants.append((names[0], parameter, known[0]))
        else:
            found.append(_agreeing(of_matrix))
    order = {name: place for place, name in enumerate(hooked)}
    found = [part for matrix in found for part in _split(matrix, modules)]
    found.sort(key=lambda matrix: order.get(matrix.names[0], len(order)))
    n_writers = sum(len(matrix.names) for matrix in found if matrix.writes and matrix.within is None)
    roles_kept = (first[name][1] for name in kept)
    n_writers += sum(len(role.names) for role in roles_kept if isinstance(role, Matrix) and role.writes)
    if isinstance(model, HookedTransformer):
        n_writers = 2 * len(model.blocks)
    return Parameters(tuple(found), tuple(constants), kept, n_writers, type(model).__name__)


def check_memory(parameters: Parameters) -> None:
    """Check that every parameter has its own writable memory.

    Raises:
        ValueError: If a parameter is on the meta device, expanded, or made in inference mode.
    """
    every = [(matrix.label, matrix.parameter) for matrix in parameters.matrices]
    for name, parameter in [*every, *(constant[:2] for constant in parameters.constants)]:
        steps = zip(parameter.shape, parameter.stride(), strict=True)
        is_expanded = any(size > 1 and stride == 0 for size, stride in steps)
        of_inference = parameter.is_inference() and not torch.is_inference_mode_enabled()
        if parameter.is_meta or is_expanded or of_inference:
            what = "on the meta device" if parameter.is_meta else "expanded or made in inference mode"
            raise ValueError(
                f"every parameter must have its own writable memory, got {name}, which is {what}. Call "
                "model.to_empty(device=...) first and set the buffers, or use parameter.data.clone()"
            )


_BEFORE = "Draw its weights before it is quantised or sharded"


def _drawable(model: object) -> nn.Module:
    """Return the model within wrappers that do not change its output.

    Raises:
        ValueError: If it is not a torch module, or a TransformerBridge, which keeps copies of fused weights.
    """
    model = unwrapped(model)
    is_bridge = any(cls.__name__ == "TransformerBridge" for cls in type(model).__mro__)
    if not isinstance(model, nn.Module) or is_bridge:
        raise ValueError(
            f"model must be a HookedTransformer or a plain torch module, got a {type(model).__name__}. Give "
            "the torch module, and wrap it after its weights are drawn"
        )
    return model


def _check_tensor(name: str, parameter: Tensor) -> None:
    """Check that a parameter is an ordinary tensor of floating point.

    Raises:
        ValueError: If it is not.
    """
    if isinstance(parameter, nn.UninitializedParameter):
        raise ValueError(f"every parameter must have a shape, got {name} of a lazy module. Run a batch first")
    wraps_others = hasattr(parameter, "__tensor_flatten__")  # a DTensor, or one of torchao
    ordinary = parameter.layout == torch.strided and not wraps_others
    if not ordinary or parameter.dtype not in _DTYPES:
        what = "" if ordinary else f" ({type(parameter.data).__name__}, {parameter.layout})"
        raise ValueError(
            "every parameter must be an ordinary tensor of float16, bfloat16, float32 or float64, "
            f"got {name} of {parameter.dtype}{what}. {_BEFORE}"
        )


def _fan_ins(fan_in: Mapping[str, int | None], names: list[str]) -> dict[str, int | None]:
    """Return the fan-in that the caller gives for each parameter; the last matching pattern counts.

    Raises:
        ValueError: If a name matches nothing, or a value is not a fan-in.
    """
    if not isinstance(fan_in, Mapping):
        raise ValueError(f"fan_in must be a dict of names and numbers, got {safe_repr(fan_in)}. Give a dict")
    asked: dict[str, int | None] = {}
    for pattern, number in fan_in.items():
        fitting = fnmatch.filter(names, str(pattern))
        if not fitting:
            hint = suggestion(pattern, names[:20])
            raise ValueError(f"fan_in must name parameters of the model, got {safe_repr(pattern)}. {hint}")
        check_number(f"the fan-in of {pattern}", number, minimum=1, integer=True, optional=True)
        asked |= dict.fromkeys(fitting, number)
    return asked


def _role(
    name: str,
    module: nn.Module,
    own: str,
    names: tuple[str, ...],
    parameter: Tensor,
    hooked: Mapping[str, tuple[Part, tuple[int, ...]]],
    trace: Traced,
) -> Matrix | float | None:
    """Classify a parameter as a matrix, or a bias or norm with its initial value; `None` if uncertain.

    A Linear is the head if its product is the output. Without a forward pass, a name outside all other
    modules does not tell a head from an MLP.
    """
    shape = parameter.shape
    if name in hooked:
        part, axes = hooked[name]
        fan_in = torch.Size(shape[axis] for axis in axes).numel()
        writes = writes_to_residual(name)
        return Matrix(names, parameter, fan_in, part, expert_of(name), writes)
    if hooked and (is_bias(name) or own in ("w", "b")):  # w and b are those of a norm
        return without_a_draw(name)
    path = name.removesuffix(own).rstrip(".")
    linear = isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or _is_conv1d(module)
    match module, own:
        case nn.Embedding() | nn.EmbeddingBag(), "weight" if not _BIASES_OF_SCORES.search(name):
            return Matrix(names, parameter, shape[1], "embedding", zero_row=module.padding_idx)
        case nn.modules.conv._ConvTransposeNd(), "weight":
            return None
        case _, "weight" if linear:
            fan_in = shape[0] if _is_conv1d(module) else shape[1:].numel()
            is_head, writes = names[0] == trace.head, path.rpartition(".")[2] in _WRITERS
            if is_head or (writes and "." not in path and not trace.ran):
                return Matrix(names, parameter, fan_in, "embedding" if is_head else None)
            return Matrix(names, parameter, fan_in, _part(path), writes=writes)
        case nn.RNNBase() | nn.RNNCellBase(), _:
            return Matrix(names, parameter, shape[1]) if own.startswith("weight") else 0.0
        case nn.MultiheadAttention(), "in_proj_weight":
            return Matrix(names, parameter, shape[1])
        case nn.MultiheadAttention(), "q_proj_weight" | "k_proj_weight" | "v_proj_weight":
            return Matrix(names, parameter, shape[1], "vo" if own == "v_proj_weight" else "qk")
        case _, "bias" | "in_proj_bias" if linear or isinstance(module, nn.MultiheadAttention):
            return 0.0
        case nn.LayerNorm() | nn.RMSNorm() | nn.GroupNorm() | nn.modules.batchnorm._NormBase(), _:
            return float(own == "weight")
        case _:
            return _start_of_own_norm(module, own)


_BIASES_OF_SCORES = re.compile(r"(relative|rel_pos|rel_attn|bias)[^.]*(\.weight)?$")
"""The names of tables that add to attention scores, [distances, heads]: no fan-in, as for biases."""
_PARAMETRISED = re.compile(r"\.parametrizations\.|\bweight_(g|v|orig)$")
"""The names that weight_norm and spectral_norm give to the components of a weight."""


def _uncertain(
    name: str, module: nn.Module, shape: torch.Size, fan_ins: Mapping[str, int], unknown: Collection[str]
) -> str:
    """Advise on a parameter that is neither a known matrix nor a known constant.

    A fan-in is suggested only if a forward pass has shown it. A vector, a bias, a table of biases, and the
    components of a weight have no fan-in. A pattern matches only parameters with the same advice.
    """
    n, pattern = fan_ins.get(name), re.sub(r"\.\d+(?=\.)", ".*", name)
    alike = fnmatch.filter(unknown, pattern)
    pattern = pattern if len(alike) == len(fnmatch.filter(fan_ins.keys() | unknown, pattern)) else name
    pattern = pattern if {fan_ins.get(one) for one in alike} == {n} else name
    got = f"the fan-in of every matrix must be certain, got {name} {list(shape)} of a {type(module).__name__}"
    made_of = _PARAMETRISED.search(name) is not None
    is_bias_or_vector = sum(size > 1 for size in shape) < 2 or _BIASES_OF_SCORES.search(name) or is_bias(name)
    if made_of or is_bias_or_vector:
        first = "Draw the weights before they are parametrised, or keep" if made_of else "Keep"
        return f"{got}. {first} that parameter unchanged, fan_in={ {pattern: None} }"
    if n is None:
        return (
            f"{got}, whose inputs no forward pass shows. Map its name in fan_in to the number of inputs that "
            "each of its outputs sums, or to None to keep that parameter unchanged"
        )
    return (
        f"{got}. A forward pass shows {n} inputs: give fan_in={ {pattern: n} }, or None to keep it unchanged"
    )


def _is_conv1d(module: nn.Module) -> bool:
    """Return whether a module is Hugging Face's Linear with a weight of [in, out], or a copy of it."""
    weight = getattr(module, "weight", None)
    named = any(cls.__name__ == "Conv1D" for cls in type(module).__mro__)
    return named and isinstance(weight, Tensor) and getattr(module, "nf", None) == weight.shape[-1]


def _part(path: str) -> Part | None:
    """Return the part of a Linear, by its name and the name of the module around it.

    >>> _part("h.0.attn.c_proj"), _part("h.0.mlp.c_proj"), _part("layers.1.self_attn.q_proj"), _part("x")
    ('vo', 'mlp', 'qk', None)
    """
    *_, around, last = "", "", *path.split(".")
    return _PARTS_OF_C_PROJ.get(around) if last == "c_proj" else _PARTS.get(last)


def _start_of_own_norm(module: nn.Module, own: str) -> float | None:
    """Find the initial value of a parameter of a custom norm; `None` if the module is not a norm.

    nanoGPT and Llama multiply by the weight, Gemma by 1 + weight. So the norm is tested: with weight 1 (else
    0) and bias 0, its output vectors must have root mean square 1.
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
    """Return one of the roles of a tied matrix, preferably the embedding; all must have the same fan-in.

    Raises:
        ValueError: If the fan-ins differ.
    """
    first = next((role for role in roles if role.part == "embedding"), roles[0])
    if other := [role for role in roles if role.fan_in != first.fan_in]:
        raise ValueError(
            f"tied matrices must have one fan-in, got {first.fan_in} and {other[0].fan_in} for "
            f"{' and '.join(first.names)}. Choose one fan-in, for example fan_in={{{first.names[0]!r}: "
            f"{first.fan_in}}}"
        )
    return replace(first, writes=any(role.writes for role in roles))


def _split(matrix: Matrix, modules: Mapping[str, nn.Module]) -> Iterator[Matrix]:
    """Split a matrix that holds queries, keys and values in a known layout; yield others.

    The last matrix of such an attention of Hugging Face, `dense`, gets its part.
    """
    path, _, own = matrix.names[0].rpartition(".")
    linear = modules.get(path)
    around, _, last = path.rpartition(".") if own == "weight" else (path, "", own)
    attention = modules.get(around) if last else None
    if matrix.part is None and last == "dense" and known_class(attention):
        matrix = replace(matrix, part="vo", writes=True)
    axis = int(linear is not None and _is_conv1d(linear))
    fused = None
    if matrix.part is None and matrix.parameter.ndim == 2:
        fused = layout_of(attention, last, matrix.parameter, axis)
    if fused is None:
        yield matrix
        return
    queries_and_keys, values = values_in(matrix.parameter, axis, fused)
    yield replace(matrix, part="qk", within=queries_and_keys)
    yield replace(matrix, part="vo", within=values)
