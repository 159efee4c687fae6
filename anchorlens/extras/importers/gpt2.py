"""GPT-2 of other software: the folder of Hugging Face, the `ckpt.pt` of nanoGPT, and a minGPT in memory.

Hugging Face has config.json, and model.safetensors or pytorch_model.bin. A nanoGPT has its weights in `model`
and its sizes in `model_args` or another table of the file; bare weights need n_heads. Most files do not name
the activation. We then assume nanoGPT's activation since 2023, gelu, unless the table `model` of a
configuration gives another `act_fn`.

The matrix c_attn holds queries, keys and values next to each other, each with its heads merged.
Hugging Face's Conv1D stores [in, out], as a HookedTransformer does; the Linear of nanoGPT and minGPT stores
[out, in]. The unembedding has no bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from anchorlens.extras.importers.checkpoints import (
    StateDict,
    broken_rule,
    check_sizes,
    config_beside,
    imported,
    not_used,
    shape_of,
)
from anchorlens.extras.importers.vocabulary import vocabulary_of
from anchorlens.files import LoadedModel, Settings, Source, state_dict
from anchorlens.models import ModelConfig
from anchorlens.safe import CheckpointError, reading

BUFFERS = (".attn.bias", ".attn.masked_bias")
FIRST = "h.0.attn.c_attn.weight"
"""The weight that identifies a GPT-2; its shape tells whether the model uses Linear or Conv1D."""
_FILES = ("model.safetensors", "pytorch_model.bin")
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu", "relu"),
    "tie_word_embeddings": (True, False),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
}
"""The values of each field of a config.json that our architecture supports; the first is the default."""
HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads", "nhead")
"""The names of the number of heads in other software."""
_ACTIVATIONS = ("activation", "act_fn", "activation_function", "act_type", "nonlinearity")
_SIZES = {"n_layer": "n_layers", "n_head": "n_heads", "n_embd": "d_model", "vocab_size": "d_vocab"}
_OF_HUGGING_FACE = {**_SIZES, "n_positions": "n_ctx", "n_inner": "d_mlp"}
_OF_NANOGPT = {**_SIZES, "block_size": "n_ctx"}
"""The names of sizes in each format, and ours."""
_READ = (*_OF_HUGGING_FACE, *_ALLOWED)


def gpt2_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefix `transformer.` from the names of the tensors, and name tied embeddings twice."""
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    if "lm_head.weight" in named:  # safetensors stores tied weights once, by either name
        named.setdefault("wte.weight", named["lm_head.weight"])
    return named


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
    heads = config.n_heads
    d_model = config.d_model
    d_mlp = config.d_mlp
    d_z = heads * config.d_head
    embedding = unembedding = state.take("wte.weight", config.d_vocab, d_model)
    if tied is False or "lm_head.weight" in state:
        unembedding = state.take("lm_head.weight", config.d_vocab, d_model)
    if tied is False and unembedding is embedding:
        raise ValueError("wte.weight is missing")
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
    d_vocab, d_model = shape_of(named, "wte.weight", 2)
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
        d_mlp=max(shape_of(named, "h.0.mlp.c_fc.weight", 2)[1 - int(bool(is_of_linears(tensors)))], 1),
        d_vocab=d_vocab,
        n_ctx=shape_of(named, "wpe.weight", 2)[0],
    )


def file_in(folder: Path, config: Settings) -> Path | None:
    """Find the weights file in a folder of a Hugging Face model.

    Raises:
        CheckpointError: If the folder does not hold the weights in one file.
    """
    if "model_type" not in config.values:
        return None
    file = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if file is None:
        raise CheckpointError(
            folder,
            f"the folder must hold the weights in one file, {' or '.join(_FILES)}, got none. Save the model "
            "again with a larger max_shard_size",
        )
    return file


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameters belong to a GPT-2, with or without the prefix `transformer.`."""
    return is_of_linears(state_dict(content)) is not None


def read(source: Source) -> LoadedModel:
    """Read a GPT-2 of Hugging Face or, with weights stored as [out, in], of nanoGPT.

    Raises:
        CheckpointError: If a configuration is missing or invalid, or names a feature that ModelConfig lacks.
        ValueError: If the number of heads is not known, or the weights and the sizes contradict each other.
    """
    return (_read_nano if is_of_linears(source.tensors) else _read_hugging_face)(source)


def _read_hugging_face(source: Source) -> LoadedModel:
    """Read a GPT-2 with the config.json next to its weights.

    A configuration of the caller may give the task and the vocabulary.

    Raises:
        CheckpointError: If config.json is missing or names a feature that ModelConfig lacks.
        ValueError: If the weights do not fit config.json.
    """
    theirs = config_beside(source.file, source.file.parent)
    task, vocabulary = source.named_task, vocabulary_of(source.config)
    notes = [] if source.config is None else not_used(source.config, ("task", "vocabulary"))
    with reading(theirs.path, "its configuration cannot be read"):
        values = theirs.values
        if rule := broken_rule(values, _ALLOWED):
            raise ValueError(f"{rule}. Use another model")
        activation = values.get("activation_function", "gelu_new")
        tied = values.get("tie_word_embeddings", True)
        config = gpt2_config(source.tensors, values.get("n_head"), activation)
        d_mlp = values.get("n_inner") or 4 * config.d_model
        check_sizes({**values, "n_inner": d_mlp}, _sizes(config, _OF_HUGGING_FACE), "config.json")
    notes += not_used(theirs, _READ)
    weights = gpt2_weights(source.tensors, config, tied=tied)
    return imported("Hugging Face GPT-2", config, task, weights, notes=notes, vocabulary=vocabulary)


def _read_nano(source: Source) -> LoadedModel:
    """Read a nanoGPT.

    A configuration may give the task, the vocabulary, and `n_heads` and `act_fn` in the table `model`. If it
    does not, a table of the file has the number of heads.

    Raises:
        CheckpointError: If the configuration is invalid.
        ValueError: If the number of heads is not known, or the weights and the sizes contradict each other.
    """
    args = _with_heads(source.content)
    told = {} if source.config is None else _table(source.config.values, "model")
    used = ("task", "vocabulary", *(["model"] if told else []))
    notes = [] if source.config is None else not_used(source.config, used)
    n_heads = next((args[name] for name in HEADS if name in args), told.get("n_heads"))
    if n_heads is None:
        raise ValueError(
            "the number of heads of a nanoGPT must be in the file or in config, got none. Open the "
            "ckpt.pt that has model_args, or set n_heads in the table model of config (--config)"
        )
    stated = [str(args[name]).lower() for name in _ACTIVATIONS if name in args]
    if "act_fn" not in told and not stated:
        notes.append("the activation is not in a nanoGPT file: act_fn gelu is assumed")
    config = gpt2_config(source.tensors, n_heads, told.get("act_fn", *stated[:1] or ["gelu"]))
    check_sizes(args, _sizes(config, _OF_NANOGPT), "model_args or another table")
    check_sizes(told, {name: getattr(config, name, None) for name in told}, "the table [model]")
    whole = Settings(source.file, {**_table(source.content, "config"), **args})
    notes += not_used(whole, (*_OF_NANOGPT, "bias", *HEADS, *_ACTIVATIONS))
    step = source.content.get("iter_num")
    return imported(
        "nanoGPT",
        config,
        source.named_task,
        gpt2_weights(source.tensors, config),
        vocabulary=vocabulary_of(source.config),
        notes=notes,
        step=step if type(step) is int and 0 <= step < 10**12 else None,
    )


def _sizes(config: ModelConfig, names: Mapping[str, str]) -> dict[str, int]:
    """Return the sizes of a model by the names of another format."""
    return {theirs: getattr(config, ours) for theirs, ours in names.items()}


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the table of this name, or an empty table if there is none."""
    table = values.get(name)
    return table if isinstance(table, dict) else {}


def _with_heads(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plain fields of the first table with a number of heads, from `model_args` on, if any."""
    tables = [content.get("model_args"), *content.values(), content]
    tables += [inner for one in tables if isinstance(one, dict) for inner in one.values()]
    named = (one for one in tables if isinstance(one, dict) and not {*HEADS}.isdisjoint(one))
    return {name: value for name, value in next(named, {}).items() if not isinstance(value, dict)}
