"""Convert the weights of a GPT-2 of Hugging Face, nanoGPT or minGPT into those of a HookedTransformer.

The matrix c_attn holds queries, keys and values next to each other, each with its heads merged.
Hugging Face's Conv1D stores [in, out], as a HookedTransformer does; the Linear of nanoGPT and minGPT stores
[out, in]. The unembedding has no bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from einops import rearrange
from torch import Tensor

from anchorlens.files.importers.source import StateDict
from anchorlens.models.config import ModelConfig

BUFFERS = (".attn.bias", ".attn.masked_bias")
FIRST = "h.0.attn.c_attn.weight"
"""The weight that identifies a GPT-2; its shape tells whether the model uses Linear or Conv1D."""


def gpt2_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefix `transformer.` from the names of the tensors."""
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


def is_of_linears(tensors: Mapping[str, Tensor]) -> bool | None:
    """Return whether c_attn is stored as [out, in] instead of [in, out].

    The result is None if the weights do not belong to a GPT-2.
    """
    shape = getattr(gpt2_names(tensors).get(FIRST), "shape", ())
    return None if len(shape) != 2 else shape[0] == 3 * shape[1]


def gpt2_weights(
    tensors: Mapping[str, Tensor], config: ModelConfig, *, tied: bool | None = None
) -> dict[str, Tensor]:
    """Convert the weights into a HookedTransformer's parameters.

    Args:
        tensors: the state dict. In a model of `Linear` layers, all biases may be missing. Missing biases are
            zeros.
        config: the configuration with the sizes of the model.
        tied: True if the unembedding must be the token embedding, False if the unembedding must be in
            `tensors`, and None if both are allowed.

    Raises:
        ValueError: If a weight is missing, unknown or of the wrong shape.
    """
    state, linears = StateDict(gpt2_names(tensors)), bool(is_of_linears(tensors))
    biased = not linears or "h.0.attn.c_attn.bias" in state
    heads, d_model, d_mlp = config.n_heads, config.d_model, config.d_mlp
    d_z = heads * config.d_head
    embedding = unembedding = state.take("wte.weight", config.d_vocab, d_model)
    if tied is False or "lm_head.weight" in state:
        unembedding = state.take("lm_head.weight", config.d_vocab, d_model)
    if tied and not torch.equal(embedding.nan_to_num(), unembedding.nan_to_num()):
        raise ValueError(
            "lm_head.weight must equal wte.weight for the tied embeddings of config.json, got other values. "
            "Correct tie_word_embeddings in config.json"
        )

    def matrix(name: str, d_in: int, d_out: int) -> Tensor:
        return state.take(name, d_out, d_in).T if linears else state.take(name, d_in, d_out)

    def bias(name: str, size: int) -> Tensor:
        return state.take(name, size) if biased else embedding.new_zeros(size)

    weights = {
        "embed.W_E": embedding,
        "pos_embed.W_pos": state.take("wpe.weight", config.n_ctx, d_model),
        "unembed.W_U": unembedding.T,
        "unembed.b_U": unembedding.new_zeros(config.d_vocab),
        "ln_final.w": state.take("ln_f.weight", d_model),
        "ln_final.b": bias("ln_f.bias", d_model),
    }
    for layer in range(config.n_layers):
        h, block = f"h.{layer}", {}
        matrices = matrix(f"{h}.attn.c_attn.weight", d_model, 3 * d_z).split(d_z, dim=1)
        biases = bias(f"{h}.attn.c_attn.bias", 3 * d_z).split(d_z)
        for x, values, offsets in zip("QKV", matrices, biases, strict=True):
            block[f"attn.W_{x}"] = rearrange(values, "m (h d) -> h m d", h=heads)
            block[f"attn.b_{x}"] = rearrange(offsets, "(h d) -> h d", h=heads)
        w_o = matrix(f"{h}.attn.c_proj.weight", d_z, d_model)
        block["attn.W_O"] = rearrange(w_o, "(h d) m -> h d m", h=heads)
        block["attn.b_O"] = bias(f"{h}.attn.c_proj.bias", d_model)
        block["mlp.W_in"] = matrix(f"{h}.mlp.c_fc.weight", d_model, d_mlp)
        block["mlp.b_in"] = bias(f"{h}.mlp.c_fc.bias", d_mlp)
        block["mlp.W_out"] = matrix(f"{h}.mlp.c_proj.weight", d_mlp, d_model)
        block["mlp.b_out"] = bias(f"{h}.mlp.c_proj.bias", d_model)
        for ours, norm in (("ln1", "ln_1"), ("ln2", "ln_2")):
            block[f"{ours}.w"] = state.take(f"{h}.{norm}.weight", d_model)
            block[f"{ours}.b"] = bias(f"{h}.{norm}.bias", d_model)
        weights |= {f"blocks.{layer}.{name}": weight for name, weight in block.items()}
    state.finish(BUFFERS)
    return weights


def gpt2_config(tensors: Mapping[str, Tensor], n_heads: object, act_fn: str | None) -> ModelConfig:
    """Derive the sizes of a GPT-2 from the shapes of its weights and the number of its heads.

    Raises:
        ValueError: If a matrix is missing, or the number of heads does not divide the width.
    """
    named = gpt2_names(tensors)
    for name in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"):
        if name not in named or named[name].ndim != 2:
            raise ValueError(
                f"the weights must contain {name} with 2 dimensions, got "
                f"{named[name].ndim if name in named else 'no tensor of this name'}. Give the weights of a "
                "GPT-2"
            )
    d_vocab, d_model = named["wte.weight"].shape
    layers = {name.split(".")[1] for name in named if name.startswith("h.") and name.count(".") > 2}
    checked = ModelConfig(n_heads=n_heads, d_model=d_model)  # pyright: ignore[reportArgumentType]
    if d_model % checked.n_heads:
        raise ValueError(
            f"n_head must divide the width {d_model}, got {checked.n_heads}. Correct n_head in the "
            "configuration"
        )
    return ModelConfig(
        variant="gpt2",
        act_fn=act_fn,  # pyright: ignore[reportArgumentType]
        gamma=None,
        n_layers=len(layers),
        n_heads=checked.n_heads,
        d_model=d_model,
        d_head=d_model // checked.n_heads,
        d_mlp=max(named["h.0.mlp.c_fc.weight"].shape[1 - int(bool(is_of_linears(tensors)))], 1),
        d_vocab=d_vocab,
        n_ctx=len(named["wpe.weight"]),
    )
