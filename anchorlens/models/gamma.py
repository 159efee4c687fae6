"""The gamma table: every weight matrix, its part, its d_in and so its standard deviation.

std = d_in^-gamma (the initialization rate of arXiv 2405.05409 and 2501.08537). What counts as d_in:

| matrix         | shape                      | part      | gpt2, postnorm   | released |
|----------------|----------------------------|-----------|------------------|----------|
| W_E            | [d_vocab, d_model]         | embedding | d_model          | d_model  |
| W_pos          | [n_ctx, d_model]           | embedding | d_model          | d_model  |
| W_Q, W_K       | [n_heads, d_model, d_head] | qk        | d_model          | d_model  |
| W_V            | [n_heads, d_model, d_head] | vo        | d_model          | d_model  |
| W_O            | [n_heads, d_head, d_model] | vo        | n_heads * d_head | d_model  |
| W_in           | [d_model, d_mlp]           | mlp       | d_model          | d_model  |
| W_out          | [d_mlp, d_model]           | mlp       | d_mlp            | d_model  |
| W_U            | [d_model, d_vocab]         | embedding | d_model          | d_model  |

W_O and W_out are divided by sqrt(2 n_layers) where `scales_residual_writers` is true (`released`).
Biases are zero, but in `released` PyTorch's Linear default U(-1/sqrt(fan_in), +1/sqrt(fan_in)).
LayerNorms start at weight 1 and bias 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from anchorlens.models.config import ModelConfig, Part
from anchorlens.randomness import seed_sequence


@dataclass(frozen=True)
class WeightInit:
    """How one weight matrix starts."""

    part: Part
    """The part whose gamma applies: embedding, qk, vo or mlp."""
    fan_in: int
    """Inputs of the linear map (d_model for the embeddings)."""
    d_in: int
    """The d_in of d_in^-gamma: fan_in, or d_model throughout in `released`."""
    scale: float
    """d_in^-gamma, with the factor 1/sqrt(2 n_layers) where it applies: the std of a normal, the
    half-width of a uniform."""


def init_table(config: ModelConfig) -> dict[str, WeightInit]:
    """The gamma table of a config: parameter name -> how it starts, in the order of drawing."""
    d_z = config.n_heads * config.d_head
    table: dict[str, WeightInit] = {}

    def add(name: str, part: Part, fan_in: int, *, writes_residual: bool = False) -> None:
        d_in = config.d_model if config.variant == "released" else fan_in
        scale = float(d_in) ** -config.gamma_of(part)
        if writes_residual and config.scales_residual_writers:
            scale /= math.sqrt(2 * config.n_layers)
        table[name] = WeightInit(part, fan_in, d_in, scale)

    add("embed.W_E", "embedding", config.d_model)
    add("pos_embed.W_pos", "embedding", config.d_model)
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        add(f"{block}.attn.W_Q", "qk", config.d_model)
        add(f"{block}.attn.W_K", "qk", config.d_model)
        add(f"{block}.attn.W_V", "vo", config.d_model)
        add(f"{block}.attn.W_O", "vo", d_z, writes_residual=True)
        add(f"{block}.mlp.W_in", "mlp", config.d_model)
        add(f"{block}.mlp.W_out", "mlp", config.d_mlp, writes_residual=True)
    add("unembed.W_U", "embedding", config.d_model)
    return table


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every parameter of a config and its shape in HookedTransformer's layout, without building it."""
    heads, d_model, d_head = config.n_heads, config.d_model, config.d_head
    block = {f"attn.W_{x}": (heads, d_model, d_head) for x in "QKV"}
    block |= {f"attn.b_{x}": (heads, d_head) for x in "QKV"}
    block |= {
        "attn.W_O": (heads, d_head, d_model),
        "attn.b_O": (d_model,),
        "mlp.W_in": (d_model, config.d_mlp),
        "mlp.b_in": (config.d_mlp,),
        "mlp.W_out": (config.d_mlp, d_model),
        "mlp.b_out": (d_model,),
    }
    block |= {f"{ln}.{x}": (d_model,) for ln in ("ln1", "ln2") for x in "wb"}
    shapes: dict[str, tuple[int, ...]] = {
        "embed.W_E": (config.d_vocab, d_model),
        "pos_embed.W_pos": (config.n_ctx, d_model),
        "unembed.W_U": (d_model, config.d_vocab),
        "unembed.b_U": (config.d_vocab,),
    }
    for layer in range(config.n_layers):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    if config.variant != "postnorm":
        shapes |= {"ln_final.w": (d_model,), "ln_final.b": (d_model,)}
    return shapes


def is_frozen(config: ModelConfig, name: str) -> bool:
    """Whether a parameter is there for HookedTransformer's sake alone: zero, and never trained.

    `postnorm` has no bias but the unembedding's (the equations of arXiv 2405.05409).
    """
    biases = ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out")
    return config.variant == "postnorm" and name.endswith(biases)


def initial_weights(
    config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """Every parameter of a config as it starts, by HookedTransformer's names, from `seed` alone.

    Raises:
        ValueError: an unusable seed.
    """
    state = seed_sequence(seed, "initialisation").generate_state(1, "uint64")
    generator = torch.Generator().manual_seed(int(state[0]) >> 1)
    table = init_table(config)
    weights = {name: torch.zeros(shape, dtype=dtype) for name, shape in parameter_shapes(config).items()}
    for name, weight in table.items():
        _draw(weights[name], weight.scale, config.init_distribution, generator)
    if config.variant == "released":
        for name, fan_in in _biases(table):
            _draw(weights[name], 1 / math.sqrt(fan_in), "uniform", generator)
    for name, weight in weights.items():
        if name.endswith(".w"):
            weight.fill_(1.0)
    return weights


def _biases(table: dict[str, WeightInit]) -> Iterator[tuple[str, int]]:
    """Name and fan-in of the bias that goes with each matrix."""
    for name, weight in table.items():
        owner, matrix = name.rsplit(".", 1)
        if owner not in ("embed", "pos_embed"):
            yield f"{owner}.{matrix.replace('W_', 'b_')}", weight.fan_in


def _draw(weight: torch.Tensor, scale: float, distribution: str, generator: torch.Generator) -> None:
    if distribution == "normal":
        weight.normal_(0.0, scale, generator=generator)
    else:
        weight.uniform_(-scale, scale, generator=generator)
