"""The gamma table: every weight matrix with its part, its d_in and hence its standard deviation.

std = d_in^-gamma (the initialization rate of arXiv 2405.05409 and 2501.08537). What counts as d_in:

| matrix         | shape                      | part      | gpt2, postnorm   | released |
|----------------|----------------------------|-----------|------------------|----------|
| W_E            | [d_vocab, d_model]         | embedding | d_model          | d_model  |
| W_pos          | [n_ctx, d_model]           | embedding | d_model          | d_model  |
| W_Q, W_K       | [n_heads, d_model, d_head] | qk        | d_model          | d_model  |
| W_V            | [n_heads, d_model, d_head] | vo        | d_model          | d_model  |
| W_O            | [n_heads, d_head, d_model] | vo        | n_heads * d_head | d_model  |
| W_in, W_gate   | [d_model, d_mlp]           | mlp       | d_model          | d_model  |
| W_out          | [d_mlp, d_model]           | mlp       | d_mlp            | d_model  |
| W_U            | [d_model, d_vocab]         | embedding | d_model          | d_model  |

In a mixture of experts (`num_experts`) every block has a router and, in the place of W_in and W_out, three
matrices of each expert. TransformerLens stores them as torch's Linear does, [out, in]:

| router W_gate      | [num_experts, d_model]     | mlp       | d_model          | d_model  |
| W_in, W_gate of e  | [d_mlp, d_model]           | mlp       | d_model          | d_model  |
| W_out of e         | [d_model, d_mlp]           | mlp       | d_mlp            | d_model  |

Expert e has entry e of `gamma_experts` where that is given; the router has `gamma_mlp`. W_O and W_out are
divided by sqrt(2 n_layers) where `scales_residual_writers` is true (`released`). Biases are zero, except in
`released`: there PyTorch's Linear default U(-1/sqrt(fan_in), +1/sqrt(fan_in)). LayerNorms start at weight 1
and bias 0.
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
    """The initialisation of one weight matrix."""

    part: Part
    """The part whose gamma applies: embedding, qk, vo or mlp, unless an expert has its own."""
    fan_in: int
    """Inputs of the linear map (d_model for the embeddings)."""
    d_in: int
    """The d_in of d_in^-gamma: fan_in, or d_model throughout in `released`."""
    scale: float
    """d_in^-gamma, with the factor 1/sqrt(2 n_layers) where it applies: the std of a normal, the
    half-width of a uniform."""


_BEFORE: dict[str, tuple[Part, tuple[int, ...]]] = {
    "embed.W_E": ("embedding", (1,)),
    "pos_embed.W_pos": ("embedding", (1,)),
}
_IN_A_BLOCK: dict[str, tuple[Part, tuple[int, ...]]] = {
    "attn.W_Q": ("qk", (1,)),
    "attn.W_K": ("qk", (1,)),
    "attn._W_K": ("qk", (1,)),  # for heads that share keys and values, [n_key_value_heads, d_model, d_head]
    "attn.W_V": ("vo", (1,)),
    "attn._W_V": ("vo", (1,)),
    "attn.W_O": ("vo", (0, 1)),
    "mlp.W_in": ("mlp", (0,)),
    "mlp.W_gate": ("mlp", (0,)),
    "mlp.W_out": ("mlp", (0,)),
}
_OF_A_MIXTURE: dict[str, tuple[Part, tuple[int, ...]]] = {"mlp.W_gate.weight": ("mlp", (1,))}
_OF_AN_EXPERT: dict[str, tuple[Part, tuple[int, ...]]] = {
    "W_in.weight": ("mlp", (1,)),
    "W_gate.weight": ("mlp", (1,)),
    "W_out.weight": ("mlp", (1,)),
}
_BEHIND: dict[str, tuple[Part, tuple[int, ...]]] = {"unembed.W_U": ("embedding", (0,))}
"""The matrices in the order of drawing: each one's part, and the axes whose sizes multiply to its fan-in."""

_BIASES = ("b_Q", "b_K", "_b_K", "b_V", "_b_V", "b_O", "b_in", "b_out", "b_U")


def init_table(config: ModelConfig) -> dict[str, WeightInit]:
    """The gamma table of a config: parameter name -> its initialisation, in the order of drawing."""
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
    """Name of a weight matrix -> its part and the axes of its fan-in, in the order of drawing."""
    block = dict(_IN_A_BLOCK)
    if n_experts is not None:
        block |= _OF_A_MIXTURE
        block |= {f"mlp.experts.{e}.{name}": r for e in range(n_experts) for name, r in _OF_AN_EXPERT.items()}
    blocks = {f"blocks.{layer}.{name}": row for layer in range(n_layers) for name, row in block.items()}
    return {**_BEFORE, **blocks, **_BEHIND}


def writes_to_residual(name: str) -> bool:
    """Whether a matrix adds to the residual stream: W_O and W_out."""
    return name.removesuffix(".weight").endswith((".W_O", ".W_out"))


def expert_of(name: str) -> int | None:
    """The expert that a matrix belongs to.

    >>> expert_of("blocks.0.mlp.experts.1.W_in.weight"), expert_of("blocks.0.mlp.W_in")
    (1, None)
    """
    _, found, behind = name.partition(".mlp.experts.")
    return int(behind.split(".")[0]) if found else None


def part_of_matrices(config: ModelConfig) -> dict[str, Part]:
    """The weight matrices of a config, and the part that each belongs to: embedding, qk, vo or mlp."""
    shapes = parameter_shapes(config)
    table = matrices(config.n_layers, config.num_experts)
    return {name: part for name, (part, _) in table.items() if name in shapes}


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every parameter of a config and its shape in HookedTransformer's layout, without building it."""
    heads, d_model, d_head = config.n_heads, config.d_model, config.d_head
    block = {f"attn.W_{x}": (heads, d_model, d_head) for x in "QKV"}
    block |= {f"attn.b_{x}": (heads, d_head) for x in "QKV"}
    block |= {
        "attn.W_O": (heads, d_head, d_model),
        "attn.b_O": (d_model,),
    }
    block |= {f"mlp.{name}": shape for name, shape in _mlp_shapes(config).items()}
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


def _mlp_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every parameter of an MLP, or of a mixture of experts."""
    d_model, d_mlp = config.d_model, config.d_mlp
    if config.num_experts is None:
        return {"W_in": (d_model, d_mlp), "b_in": (d_mlp,), "W_out": (d_mlp, d_model), "b_out": (d_model,)}
    expert = {"W_in.weight": (d_mlp, d_model), "W_out.weight": (d_model, d_mlp)}
    expert["W_gate.weight"] = (d_mlp, d_model)
    of_experts = {f"experts.{e}.{name}": s for e in range(config.num_experts) for name, s in expert.items()}
    return of_experts | {"W_gate.weight": (config.num_experts, d_model)}


def is_frozen(config: ModelConfig, name: str) -> bool:
    """Whether a parameter exists only because HookedTransformer has it: it is zero and never trained.

    `postnorm` has biases only in its LayerNorms and the unembedding (the equations of arXiv 2405.05409).
    """
    biases = ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out")
    return config.variant == "postnorm" and name.endswith(biases)


def initial_weights(
    config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """The initial value of every parameter, by HookedTransformer's names; depends on config and seed alone.

    Raises:
        ValueError: an unusable seed.
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
        for name, fan_in in _biases(table):
            draw(weights[name], 1 / math.sqrt(fan_in), "uniform", generator)
    return weights


def _biases(table: dict[str, WeightInit]) -> Iterator[tuple[str, int]]:
    """Name and fan-in of the bias of each matrix; experts have no biases."""
    for name, weight in table.items():
        owner, matrix = name.rsplit(".", 1)
        if matrix != "weight" and owner not in ("embed", "pos_embed"):
            yield f"{owner}.{matrix.replace('W_', 'b_')}", weight.fan_in


def is_bias_or_norm(name: str) -> bool:
    """Whether a parameter is a bias, or the weight or bias of a LayerNorm or RMSNorm (ln1, q_norm, ...)."""
    owner, own = name.rpartition(".")[::2]
    module = owner.rpartition(".")[2]
    is_norm = module.startswith("ln") or module.endswith("_norm")
    return own in _BIASES or (own in ("w", "b") and is_norm)


def without_a_draw(name: str) -> float:
    """Initial value of a parameter that is not drawn: 1 for the weight of a LayerNorm, else 0."""
    return float(name.endswith(".w"))


def initial_generator(seed: int) -> torch.Generator:
    """The random generator for the initial weights of a run.

    Raises:
        ValueError: an unusable seed.
    """
    state = seed_sequence(seed, "initialisation").generate_state(1, "uint64")
    return torch.Generator().manual_seed(int(state[0]) >> 1)


def draw(weight: torch.Tensor, scale: float, distribution: str, generator: torch.Generator) -> None:
    """Fill a tensor on the CPU with N(0, scale^2), or U(-scale, scale) where the distribution is uniform."""
    if distribution == "normal":
        weight.normal_(0.0, scale, generator=generator)
    else:
        weight.uniform_(-scale, scale, generator=generator)
