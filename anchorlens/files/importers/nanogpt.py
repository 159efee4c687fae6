"""The `ckpt.pt` of a nanoGPT: weights in `model` and sizes in `model_args`, or bare weights with n_head.

The file does not name the activation. We assume nanoGPT's activation since 2023, gelu, unless the table
`model` of a configuration gives another `act_fn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlens.files.importers.gpt2_weights import gpt2_config, gpt2_weights, is_of_linears
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import (
    Imported,
    ImportedModel,
    Source,
    imported,
    not_used,
    state_dict,
)
from anchorlens.texts import safe_repr

KIND = "nanoGPT"

_SIZES = {
    "n_layer": "n_layers",
    "n_head": "n_heads",
    "n_embd": "d_model",
    "block_size": "n_ctx",
    "vocab_size": "d_vocab",
}


def file_in(folder: Path, config: Settings) -> Path | None:
    """Return None, because a nanoGPT is a single file that includes its sizes."""
    return None


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameters belong to a GPT-2 of `Linear` layers, which store weights as [out, in]."""
    return is_of_linears(state_dict(content)) is True


def read(source: Source) -> Imported | ImportedModel:
    """Read a nanoGPT.

    A configuration may give the task, the vocabulary, and `n_heads` and `act_fn` in the table `model`.

    Raises:
        CheckpointError: If the configuration is invalid.
        ValueError: If the number of heads is not known, or the weights and the sizes contradict each other.
    """
    args, told, notes = source.content.get("model_args"), {}, []
    args, task, vocabulary = (args if isinstance(args, dict) else {}), source.task, None
    if source.config is not None:
        task, vocabulary = source.config.task() or task, source.config.vocabulary()
        table = source.config.values.get("model")
        told = table if isinstance(table, dict) else {}
        notes += not_used(source.config, ("task", "vocabulary", *(["model"] if told else [])))
    n_heads = args.get("n_head", told.get("n_heads"))
    if n_heads is None:
        raise ValueError(
            "the number of heads of a nanoGPT must be in model_args or in config, got none. Open the "
            "ckpt.pt that has model_args, or set n_heads in the table model of config (--config)"
        )
    if "act_fn" not in told:
        notes.append("the activation is not in a nanoGPT file: act_fn gelu is assumed")
    config = gpt2_config(source.tensors, n_heads, told.get("act_fn", "gelu"))
    for name, ours in _SIZES.items():
        if args.get(name, size := getattr(config, ours)) != size:
            raise ValueError(
                f"{name} must be {size} as in the weights, got {safe_repr(args[name])} in model_args. "
                "Correct model_args"
            )
    others = {name for name in told if told[name] != getattr(config, name, None)}
    if others:
        raise ValueError(
            f"{min(others)} must match the weights, got {safe_repr(told[min(others)])} in the table [model]. "
            f"Correct or omit {min(others)}"
        )
    recipe = source.content.get("config")
    whole = Settings(source.file, {**(recipe if isinstance(recipe, dict) else {}), **args})
    notes += not_used(whole, (*_SIZES, "bias"))
    step = source.content.get("iter_num")
    return imported(
        config,
        task,
        gpt2_weights(source.tensors, config),
        vocabulary=vocabulary,
        notes=notes,
        step=step if type(step) is int and 0 <= step < 10**12 else None,
    )
