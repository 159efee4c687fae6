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

from torch import Tensor

from anchorlens.extras.importers.checkpoints import (
    broken_rule,
    check_sizes,
    config_beside,
    imported,
    not_used,
    taken,
)
from anchorlens.extras.importers.hooked_transformer import sizes_of
from anchorlens.extras.importers.name_map import of_modules, weights_of
from anchorlens.extras.importers.vocabulary import vocabulary_of
from anchorlens.files import LoadedModel, Settings, Source, state_dict
from anchorlens.models import ModelConfig, parameter_shapes
from anchorlens.safe import CheckpointError, reading

_BUFFERS = (".attn.bias", ".attn.masked_bias")
FIRST = "h.0.attn.c_attn.weight"
"""The weight that identifies a GPT-2; its shape tells whether the model uses Linear or Conv1D."""
_FILES = ("model.safetensors", "pytorch_model.bin")
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu", "relu"),
    "tie_word_embeddings": (True, False),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    **dict.fromkeys(("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"), (False,)),
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
_MODULES = {
    "ln_final.w": "ln_f",
    **{f"blocks.{{l}}.attn.W_{x}": "h.{l}.attn.c_attn" for x in "QKV"},
    "blocks.{l}.attn.W_O": "h.{l}.attn.c_proj",
    "blocks.{l}.mlp.W_in": "h.{l}.mlp.c_fc",
    "blocks.{l}.mlp.W_out": "h.{l}.mlp.c_proj",
    "blocks.{l}.ln1.w": "h.{l}.ln_1",
    "blocks.{l}.ln2.w": "h.{l}.ln_2",
}
"""The matrices of a HookedTransformer, and the modules of a GPT-2."""


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


def gpt2_map(named: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the map of the names of a GPT-2 with the biases and the unembedding that it has.

    In a model of `Linear` layers, all biases may be missing.
    """
    linears = bool(is_of_linears(named))
    return {
        "embed.W_E": {"name": "wte.weight", "transpose": False},
        "pos_embed.W_pos": {"name": "wpe.weight", "transpose": False},
        "unembed.W_U": {
            "name": "lm_head.weight" if "lm_head.weight" in named else "wte.weight",
            "transpose": True,
        },
        **of_modules(_MODULES, transpose=linears, biased=not linears or "h.0.attn.c_attn.bias" in named),
    }


def gpt2_model(
    tensors: Mapping[str, Tensor], n_heads: object, act_fn: object, *, tied: bool | None = None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Convert a state dict into a configuration and a HookedTransformer's parameters.

    Args:
        tensors: the state dict.
        n_heads: the number of heads.
        act_fn: the activation function.
        tied: True if the unembedding must be the token embedding, False if the unembedding must be in
            `tensors`, and None if both are allowed.

    Raises:
        ValueError: If a weight is missing, unknown or of the wrong shape, or the number of heads does not
            divide the width.
    """
    named = gpt2_names(tensors)
    stored = {name.removeprefix("transformer.") for name in tensors}
    if tied is False and (missing := {"lm_head.weight", "wte.weight"} - stored):
        raise ValueError(f"{min(missing)} is missing")
    found = weights_of(named, gpt2_map(named), n_heads, buffers=_BUFFERS)
    config = ModelConfig.from_dict({"variant": "gpt2", "act_fn": act_fn, "gamma": None, **sizes_of(found)})
    weights = taken(found, parameter_shapes(config))
    if tied and not weights["embed.W_E"].nan_to_num().equal(weights["unembed.W_U"].T.nan_to_num()):
        raise ValueError(
            "lm_head.weight must equal wte.weight for the tied embeddings of config.json, got other values. "
            "Correct tie_word_embeddings in config.json"
        )
    return config, weights


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
        config, weights = gpt2_model(source.tensors, values.get("n_head"), activation, tied=tied)
        d_mlp = values.get("n_inner") or 4 * config.d_model
        check_sizes({**values, "n_inner": d_mlp}, _sizes(config, _OF_HUGGING_FACE), "config.json")
    notes += not_used(theirs, _READ)
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
    act_fn = told.get("act_fn", *stated[:1] or ["gelu"])
    config, weights = gpt2_model(source.tensors, n_heads, act_fn)
    check_sizes(args, _sizes(config, _OF_NANOGPT), "model_args or another table")
    check_sizes(told, {name: getattr(config, name, None) for name in told}, "the table [model]")
    whole = Settings(source.file, {**_table(source.content, "config"), **args})
    notes += not_used(whole, (*_OF_NANOGPT, "bias", *HEADS, *_ACTIVATIONS))
    task, vocabulary = source.named_task, vocabulary_of(source.config)
    step = source.content.get("iter_num")
    step = step if type(step) is int and 0 <= step < 10**12 else None
    return imported("nanoGPT", config, task, weights, vocabulary=vocabulary, notes=notes, step=step)


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
