"""The gamma table: every weight matrix with its part, its d_in and hence its standard deviation.

std = d_in^-gamma (the initialisation rate of arXiv 2405.05409 and 2501.08537). The table gives d_in:

| matrix         | shape                      | part      | all others       | released |
|----------------|----------------------------|-----------|------------------|----------|
| W_E            | [d_vocab, d_model]         | embedding | d_model          | d_model  |
| W_pos          | [n_ctx, d_model]           | embedding | d_model          | d_model  |
| W_Q, W_K       | [n_heads, d_model, d_head] | qk        | d_model          | d_model  |
| W_V            | [n_heads, d_model, d_head] | vo        | d_model          | d_model  |
| W_O            | [n_heads, d_head, d_model] | vo        | n_heads * d_head | d_model  |
| W_in, W_gate   | [d_model, d_mlp]           | mlp       | d_model          | d_model  |
| W_out          | [d_mlp, d_model]           | mlp       | d_mlp            | d_model  |
| W_U            | [d_model, d_vocab_out]     | embedding | d_model          | d_model  |

In a mixture of experts (`num_experts`) every block has a router and, instead of W_in and W_out, three
matrices of each expert. TransformerLens stores them as torch's Linear does, [out, in]:

| router W_gate      | [num_experts, d_model]     | mlp       | d_model          | d_model  |
| W_in, W_gate of e  | [d_mlp, d_model]           | mlp       | d_model          | d_model  |
| W_out of e         | [d_model, d_mlp]           | mlp       | d_mlp            | d_model  |

Expert e has entry e of `gamma_experts` if that field is given; the router has `gamma_mlp`. W_O and W_out are
divided by sqrt(2 n_layers) where `scales_residual_writers` is true (`released`). Biases are zero, except in
`released`: there PyTorch's Linear default U(-1/sqrt(fan_in), +1/sqrt(fan_in)). LayerNorms start at weight 1
and bias 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from anchorlens.models.config import ModelConfig, Part
from anchorlens.randomness import seed_sequence


@dataclass(frozen=True)
class WeightInit:
    """The initialisation of one weight matrix."""

    part: Part
    """The part whose gamma applies (embedding, qk, vo or mlp), unless `gamma_experts` is given."""
    fan_in: int
    """The number of inputs of the linear map (d_model for the embeddings)."""
    d_in: int
    """The d_in of d_in^-gamma: fan_in, or d_model throughout in `released`."""
    scale: float
    """The std of a normal or the half-width of a uniform distribution: d_in^-gamma, with the factor
    1/sqrt(2 n_layers) where it applies."""


class _Row(NamedTuple):
    """A kind of parameter."""

    axes: str
    """The attributes of a configuration with the sizes of the axes."""
    part: Part | None = None
    """The part that a matrix belongs to; None for a bias and for the parameters of a LayerNorm."""
    fan_in: str = "d_model"
    """The axes of a matrix whose sizes multiply to its fan-in."""


_EMBEDDING = {
    "embed.W_E": _Row("d_vocab d_model", "embedding"),
    "pos_embed.W_pos": _Row("n_ctx d_model", "embedding"),
}
_ATTENTION = {
    "attn.W_Q": _Row("n_heads d_model d_head", "qk"),
    "attn.W_K": _Row("n_heads d_model d_head", "qk"),
    "attn._W_K": _Row("n_key_value_heads d_model d_head", "qk"),
    "attn.W_V": _Row("n_heads d_model d_head", "vo"),
    "attn._W_V": _Row("n_key_value_heads d_model d_head", "vo"),
    **{f"attn.b_{x}": _Row("n_heads d_head") for x in "QKV"},
    "attn.W_O": _Row("n_heads d_head d_model", "vo", "n_heads d_head"),
    "attn.b_O": _Row("d_model"),
}
_MLP = {
    "mlp.W_in": _Row("d_model d_mlp", "mlp"),
    "mlp.b_in": _Row("d_mlp"),
    "mlp.W_gate": _Row("d_model d_mlp", "mlp"),
    "mlp.W_out": _Row("d_mlp d_model", "mlp", "d_mlp"),
    "mlp.b_out": _Row("d_model"),
}
_ROUTER = {"mlp.W_gate.weight": _Row("num_experts d_model", "mlp")}
_EXPERT = {
    "W_in.weight": _Row("d_mlp d_model", "mlp"),
    "W_gate.weight": _Row("d_mlp d_model", "mlp"),
    "W_out.weight": _Row("d_model d_mlp", "mlp", "d_mlp"),
}
_NORMS = {f"{norm}.{x}": _Row("d_model") for norm in ("ln1", "ln2") for x in "wb"}
_UNEMBEDDING = {"unembed.W_U": _Row("d_model n_answers", "embedding"), "unembed.b_U": _Row("n_answers")}
_FINAL_NORM = {f"ln_final.{x}": _Row("d_model") for x in "wb"}
"""All kinds of parameters, without the name of block or expert. Matrices are drawn in this order."""
_OF_OTHERS = ("attn._W_K", "attn._W_V", "mlp.W_gate")
"""The matrices of a HookedTransformer with shared keys and values or gated MLPs, which no ModelConfig has."""


def init_table(config: ModelConfig) -> dict[str, WeightInit]:
    """Return a map from each weight matrix to its initialisation, in the order of the random draws."""
    shapes = parameter_shapes(config)
    table: dict[str, WeightInit] = {}
    for name, (part, axes) in matrices(config.n_layers, config.num_experts).items():
        if name in shapes:
            fan_in = math.prod(shapes[name][axis] for axis in axes)
            d_in = config.d_model if config.variant == "released" else fan_in
            scale = float(d_in) ** -config.gamma_of(part, expert_of(name))
            if writes_to_residual(name) and config.scales_residual_writers:
                scale /= math.sqrt(2 * config.n_layers)
            table[name] = WeightInit(part, fan_in, d_in, scale)
    return table


def matrices(n_layers: int, n_experts: int | None = None) -> dict[str, tuple[Part, tuple[int, ...]]]:
    """Map each weight matrix to its part and the axes of its fan-in, in the order of the random draws."""
    block = _ATTENTION | _MLP | (_ROUTER | _experts(n_experts) if n_experts else {})
    found: dict[str, tuple[Part, tuple[int, ...]]] = {}
    for name, row in (_EMBEDDING | _blocks(n_layers, block) | _UNEMBEDDING).items():
        if row.part is not None:
            found[name] = row.part, tuple(row.axes.split().index(axis) for axis in row.fan_in.split())
    return found


def _experts(n_experts: int) -> dict[str, _Row]:
    return {f"mlp.experts.{e}.{name}": row for e in range(n_experts) for name, row in _EXPERT.items()}


def _blocks(n_layers: int, block: Mapping[str, _Row]) -> dict[str, _Row]:
    return {f"blocks.{layer}.{name}": row for layer in range(n_layers) for name, row in block.items()}


def writes_to_residual(name: str) -> bool:
    """Check whether a matrix writes to the residual stream, as W_O and W_out do."""
    return name.removesuffix(".weight").endswith((".W_O", ".W_out"))


def expert_of(name: str) -> int | None:
    """Return the index of the expert that a matrix belongs to, or None for any other matrix.

    >>> expert_of("blocks.0.mlp.experts.1.W_in.weight"), expert_of("blocks.0.mlp.W_in")
    (1, None)
    """
    _, found, behind = name.partition(".mlp.experts.")
    return int(behind.split(".")[0]) if found else None


def part_of_matrices(config: ModelConfig) -> dict[str, Part]:
    """Map each weight matrix of a config to its part: embedding, qk, vo or mlp."""
    shapes = parameter_shapes(config)
    table = matrices(config.n_layers, config.num_experts)
    return {name: part for name, (part, _) in table.items() if name in shapes}


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter in HookedTransformer's layout, without building the model."""
    mlp = _MLP if config.num_experts is None else _experts(config.num_experts) | _ROUTER
    norms = {} if config.variant == "plain" else _NORMS
    block = {name: row for name, row in (_ATTENTION | mlp | norms).items() if name not in _OF_OTHERS}
    rows = _EMBEDDING | _UNEMBEDDING | _blocks(config.n_layers, block)
    if config.variant not in ("postnorm", "plain"):
        rows |= _FINAL_NORM
    return {name: tuple(getattr(config, axis) for axis in row.axes.split()) for name, row in rows.items()}


def is_frozen(config: ModelConfig, name: str) -> bool:
    """Check whether a parameter is zero and never trained, because the variant does not use the parameter.

    In the equations of arXiv 2405.05409, `postnorm` has biases only in LayerNorms and the unembedding.
    """
    return config.variant == "postnorm" and is_bias(name) and not name.startswith("unembed.")


def initial_weights(
    config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """Return the initial values of all parameters, by the parameter names of HookedTransformer.

    The values depend only on the config and the seed.

    Raises:
        ValueError: If the seed is invalid.
    """
    generator = initial_generator(seed)
    table = init_table(config)
    shapes = parameter_shapes(config)
    weights = {
        name: torch.full(shape, without_a_draw(name), dtype=dtype, device="cpu")
        for name, shape in shapes.items()
    }
    for name, weight in table.items():
        draw(weights[name], weight.scale, config.init_distribution, generator)
    if config.variant == "released":
        for name, weight in table.items():
            owner, matrix = name.rsplit(".", 1)
            if matrix != "weight" and owner not in ("embed", "pos_embed"):
                bias = weights[f"{owner}.{matrix.replace('W_', 'b_')}"]
                draw(bias, 1 / math.sqrt(weight.fan_in), "uniform", generator)
    return weights


def is_bias(name: str) -> bool:
    """Check whether a parameter is a bias."""
    return name.rpartition(".")[2].lstrip("_").startswith("b_")


def without_a_draw(name: str) -> float:
    """Return the initial value of a parameter that is not drawn: 1 for a LayerNorm's weight, else 0."""
    return float(name.endswith(".w"))


def initial_generator(seed: int) -> torch.Generator:
    """Make the random generator for the initial weights of a run.

    Raises:
        ValueError: If the seed is invalid.
    """
    state = seed_sequence(seed, "initialisation").generate_state(1, "uint64")
    return torch.Generator().manual_seed(int(state[0]) >> 1)


def draw(weight: torch.Tensor, scale: float, distribution: str, generator: torch.Generator) -> None:
    """Fill a tensor on the CPU with draws from N(0, scale^2) or U(-scale, scale)."""
    if distribution == "normal":
        weight.normal_(0.0, scale, generator=generator)
    else:
        weight.uniform_(-scale, scale, generator=generator)
