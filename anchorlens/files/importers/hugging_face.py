"""Folders of a Hugging Face GPT-2: config.json and model.safetensors or pytorch_model.bin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlens.configuration import check_choice
from anchorlens.files.importers.gpt2_weights import gpt2_weights, is_of_linears
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import (
    Imported,
    ImportedModel,
    Source,
    imported,
    not_used,
    state_dict,
)
from anchorlens.models.config import ModelConfig
from anchorlens.safe import CheckpointError, reading
from anchorlens.texts import safe_repr

KIND = "Hugging Face GPT-2"

_FILES = ("model.safetensors", "pytorch_model.bin")
_ACTIVATIONS = ("gelu_new", "gelu", "relu")
_EXPECTED: dict[str, Any] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"""The only value of each option that our architecture supports, also Hugging Face's default."""
_READ = (
    *("model_type", "n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "n_inner"),
    *("activation_function", "tie_word_embeddings"),
)


def file_in(folder: Path, config: Settings) -> Path | None:
    """Find the weights file in a folder of a Hugging Face model.

    Raises:
        CheckpointError: If the architecture is not GPT-2, or the weights are in several files.
    """
    if "model_type" not in config.values:
        return None
    _check_type(config)
    for name in _FILES:
        if (folder / name).exists():
            return folder / name
        if (folder / f"{name}.index.json").exists():
            raise CheckpointError(
                folder,
                "the weights must be in one file, got several files. Save the model again with a larger "
                "max_shard_size",
            )
    raise CheckpointError(
        folder,
        f"the folder must hold weights, {' or '.join(_FILES)}, got none. Give the folder of a saved model",
    )


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameters belong to a GPT-2, with or without the prefix `transformer.`."""
    return is_of_linears(state_dict(content)) is False


def read(source: Source) -> Imported | ImportedModel:
    """Read a GPT-2 with the config.json next to its weights.

    A configuration of the caller may give the task and the vocabulary.

    Raises:
        CheckpointError: If config.json is missing or names a feature that ModelConfig lacks.
        ValueError: If the weights do not fit config.json.
    """
    theirs = Settings.beside(source.file, source.file.parent)
    _check_type(theirs)
    task, vocabulary, notes = source.task, None, []
    if source.config is not None:
        task, vocabulary = source.config.task() or task, source.config.vocabulary()
        notes += not_used(source.config, ("task", "vocabulary"))
    with reading(theirs.path, "its configuration cannot be read"):
        config = _model(theirs.values)
        tied = theirs.values.get("tie_word_embeddings", True)
        if not isinstance(tied, bool):
            raise ValueError(
                f"tie_word_embeddings must be true or false, got {safe_repr(tied)}. Correct config.json"
            )
    notes += not_used(theirs, (*_EXPECTED, *_READ))
    weights = gpt2_weights(source.tensors, config, tied=tied)
    return imported(config, task, weights, notes=notes, vocabulary=vocabulary)


def _check_type(theirs: Settings) -> None:
    if theirs.values.get("model_type") != "gpt2":
        model_type = theirs.values.get("model_type")
        raise CheckpointError(
            theirs.path,
            f"model_type must be 'gpt2', got {safe_repr(model_type)}. Other models cannot be read",
        )


def _model(theirs: Mapping[str, Any]) -> ModelConfig:
    for name, expected in _EXPECTED.items():
        if theirs.get(name, expected) != expected:
            raise ValueError(f"{name} must be {expected!r}, got {safe_repr(theirs[name])}. Use another model")
    activation = theirs.get("activation_function", "gelu_new")
    check_choice("activation_function", activation, _ACTIVATIONS)
    d_model, n_heads = theirs.get("n_embd"), theirs.get("n_head")
    d_mlp = theirs.get("n_inner")
    shapes: dict[str, Any] = {"n_layers": theirs.get("n_layer"), "n_heads": n_heads, "d_model": d_model}
    shapes |= {"d_vocab": theirs.get("vocab_size"), "n_ctx": theirs.get("n_positions")}
    checked = ModelConfig(**shapes)
    if checked.d_model % checked.n_heads:
        raise ValueError(
            f"n_embd must be a multiple of n_head, {n_heads}, got {d_model}. Correct config.json"
        )
    shapes |= {"d_head": checked.d_model // checked.n_heads}
    shapes |= {"d_mlp": 4 * checked.d_model if d_mlp is None else d_mlp}
    return ModelConfig(variant="gpt2", act_fn=activation, gamma=None, **shapes)
