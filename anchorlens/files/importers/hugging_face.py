"""Folders of a Hugging Face GPT-2: config.json and model.safetensors or pytorch_model.bin.

Their Conv1D stores [in, out], as we do, with queries, keys and values side by side and heads merged. The
unembedding is the token embedding unless `tie_word_embeddings` is false, and has no bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from anchorlens.configuration import check_choice
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import PAPERS_TASK, Imported, Source, StateDict, imported, state_dict
from anchorlens.models.config import ModelConfig
from anchorlens.safe import CheckpointError, reading, safe_repr
from anchorlens.tasks.two_anchor.task import AnchorTask

KIND = "Hugging Face GPT-2"

_FILES = ("model.safetensors", "pytorch_model.bin")
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_ACTIVATIONS = ("gelu_new", "gelu", "relu")
_EXPECTED: dict[str, Any] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"""Option -> the only value that our architecture supports, which is also Hugging Face's default."""


def file_in(folder: Path, config: Settings) -> Path | None:
    """The weights file in a folder of a Hugging Face model.

    Raises:
        CheckpointError: another architecture, or weights in several files.
    """
    if "model_type" not in config.values:
        return None
    _check_type(config)
    for name in _FILES:
        if (folder / name).exists():
            return folder / name
        if (folder / f"{name}.index.json").exists():
            raise CheckpointError(
                folder, "its weights are split over several files; save it again with a larger max_shard_size"
            )
    raise CheckpointError(folder, f"it has no weights: neither {' nor '.join(_FILES)} is in it")


def recognises(content: Mapping[str, Any]) -> bool:
    """Whether the parameter names are Hugging Face GPT-2's, with or without the prefix `transformer.`."""
    return any(f"{prefix}h.0.attn.c_attn.weight" in state_dict(content) for prefix in ("", "transformer."))


def read(source: Source) -> Imported:
    """Read a GPT-2 with the config.json beside it; a configuration may give task and vocabulary.

    Raises:
        CheckpointError: config.json is missing or asks for a feature that ModelConfig lacks.
        ValueError: the weights are not those of that configuration.
    """
    theirs = Settings.beside(source.file, source.file.parent)
    _check_type(theirs)
    task, vocabulary = source.task, None
    if source.config is not None:
        task, vocabulary = source.config.task() or task, source.config.vocabulary()
    with reading(theirs.path, "its configuration cannot be read"):
        config = _model(theirs.values)
        tied = theirs.values.get("tie_word_embeddings", True)
        if not isinstance(tied, bool):
            raise ValueError(f"tie_word_embeddings must be true or false, got {safe_repr(tied)}")
    weights = _weights(source.tensors, config, tied)
    notes = [PAPERS_TASK] if task is None else []
    return imported(config, task or AnchorTask(), weights, notes=notes, vocabulary=vocabulary)


def _check_type(theirs: Settings) -> None:
    if theirs.values.get("model_type") != "gpt2":
        model_type = theirs.values.get("model_type")
        raise CheckpointError(
            theirs.path, f"model_type must be 'gpt2', got {safe_repr(model_type)}; no other can be read"
        )


def _model(theirs: Mapping[str, Any]) -> ModelConfig:
    for name, expected in _EXPECTED.items():
        if theirs.get(name, expected) != expected:
            raise ValueError(f"{name} must be {expected!r}, got {safe_repr(theirs[name])}")
    activation = theirs.get("activation_function", "gelu_new")
    check_choice("activation_function", activation, _ACTIVATIONS)
    d_model, n_heads = theirs.get("n_embd"), theirs.get("n_head")
    d_mlp = theirs.get("n_inner")
    shapes: dict[str, Any] = {"n_layers": theirs.get("n_layer"), "n_heads": n_heads, "d_model": d_model}
    shapes |= {"d_vocab": theirs.get("vocab_size"), "n_ctx": theirs.get("n_positions")}
    checked = ModelConfig(**shapes)
    if checked.d_model % checked.n_heads:
        raise ValueError(f"n_embd must be a multiple of n_head, {n_heads}, got {d_model}")
    shapes |= {"d_head": checked.d_model // checked.n_heads}
    shapes |= {"d_mlp": 4 * checked.d_model if d_mlp is None else d_mlp}
    return ModelConfig(variant="gpt2", act_fn=activation, gamma=None, **shapes)


def _weights(tensors: Mapping[str, Tensor], config: ModelConfig, tied: bool) -> dict[str, Tensor]:
    state = StateDict({name.removeprefix("transformer."): tensor for name, tensor in tensors.items()})
    heads, d_model, d_mlp = config.n_heads, config.d_model, config.d_mlp
    d_z = heads * config.d_head
    embedding = unembedding = state.take("wte.weight", config.d_vocab, d_model)
    if not tied or "lm_head.weight" in state:
        unembedding = state.take("lm_head.weight", config.d_vocab, d_model)
    if tied and not torch.equal(embedding.nan_to_num(), unembedding.nan_to_num()):
        raise ValueError("lm_head.weight differs from wte.weight, but config.json says that they are tied")
    weights = {
        "embed.W_E": embedding,
        "pos_embed.W_pos": state.take("wpe.weight", config.n_ctx, d_model),
        "unembed.W_U": unembedding.T,
        "unembed.b_U": unembedding.new_zeros(config.d_vocab),
        "ln_final.w": state.take("ln_f.weight", d_model),
        "ln_final.b": state.take("ln_f.bias", d_model),
    }
    for layer in range(config.n_layers):
        h, block = f"h.{layer}", {}
        matrices = state.take(f"{h}.attn.c_attn.weight", d_model, 3 * d_z).split(d_z, dim=1)
        biases = state.take(f"{h}.attn.c_attn.bias", 3 * d_z).split(d_z)
        for x, matrix, bias in zip("QKV", matrices, biases, strict=True):
            block[f"attn.W_{x}"] = rearrange(matrix, "m (h d) -> h m d", h=heads)
            block[f"attn.b_{x}"] = rearrange(bias, "(h d) -> h d", h=heads)
        w_o = state.take(f"{h}.attn.c_proj.weight", d_z, d_model)
        block["attn.W_O"] = rearrange(w_o, "(h d) m -> h d m", h=heads)
        block["attn.b_O"] = state.take(f"{h}.attn.c_proj.bias", d_model)
        block["mlp.W_in"] = state.take(f"{h}.mlp.c_fc.weight", d_model, d_mlp)
        block["mlp.b_in"] = state.take(f"{h}.mlp.c_fc.bias", d_mlp)
        block["mlp.W_out"] = state.take(f"{h}.mlp.c_proj.weight", d_mlp, d_model)
        block["mlp.b_out"] = state.take(f"{h}.mlp.c_proj.bias", d_model)
        for ours, norm in (("ln1", "ln_1"), ("ln2", "ln_2")):
            block[f"{ours}.w"] = state.take(f"{h}.{norm}.weight", d_model)
            block[f"{ours}.b"] = state.take(f"{h}.{norm}.bias", d_model)
        weights |= {f"blocks.{layer}.{name}": weight for name, weight in block.items()}
    state.finish(_BUFFERS)
    return weights
