"""Weights of other software: under a key, under a prefix, or inside a larger module, in one of `FORMATS`.

Training loops save a state dict alone or under a key, and wrappers (`torch.compile`, `DataParallel`,
Lightning, a model with a probe on it) put a prefix before its names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anchorlens.extras.importers import gpt2, hooked_transformer, name_map, released_code
from anchorlens.extras.importers.checkpoints import WAYS
from anchorlens.files import KEYS, LoadedModel, Settings, Source, tables_in, unwrapped
from anchorlens.safe import CheckpointError, reading
from anchorlens.texts import safe_repr

KIND = ""
"""`read` names the format."""
FORMATS = (released_code, gpt2, hooked_transformer)
"""The formats, in the order in which they are tried."""

_SHOWN = 3
_SHARD = re.compile(r"-\d{5}-of-(?!00001)\d{5}\b")
"""The part of a name that marks one of several weights files: `model-00001-of-00003.safetensors`."""
_ADAPTER = (
    "an adapter (LoRA), which changes the weights that it belongs to. Merge it first, in peft with "
    "model.merge_and_unload(), and save the model"
)
_MARKS = {
    **dict.fromkeys(("lora_A", "lora_B", "lora_embedding_A"), _ADAPTER),
    **dict.fromkeys(("token_type_embed", "mlm_head", "nsp_head"), "a HookedEncoder (BERT)"),
    **dict.fromkeys(("cross_attn", "EncDecAttention", "encoder_attn"), "an encoder-decoder"),
}
"""Parts of the names of weights that no format has, and what they show."""
_OF_A_BRIDGE = re.compile(r"(^|\.)blocks\.\d+\.attn\.(q|k|v|qkv)\.|\._original_component\.")


def file_in(folder: Path, config: Settings) -> Path | None:
    """Find the weights file in a folder with a config.json of the released code or of Hugging Face.

    Raises:
        CheckpointError: If the folder holds an adapter, or lacks the weights.
    """
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(folder, f"adapter_config.json is that of {_ADAPTER}")
    return released_code.file_in(folder, config) or gpt2.file_in(folder, config)


def recognises(content: Mapping[str, Any]) -> bool:
    """Return True: this importer is the last, and says why it cannot read other content."""
    return True


def read(source: Source) -> LoadedModel:
    """Read the weights in the first of `FORMATS` that has their names.

    Raises:
        CheckpointError: If the weights have no known format, or cannot be read.
    """
    names = None if source.config is None else source.config.values.get("map")
    recognised = _format if names is None else partial(name_map.recognises, names)
    try:
        with reading(source.file):
            content, notes = unwrapped(source.content, lambda content: bool(recognised(content)))
            known = _format(content) if names is None else name_map
            if known is None or not _MARKS.keys().isdisjoint(_parts(source.content)):
                raise CheckpointError(source.file, unknown(source.content))
            with reading(source.file, "its weights cannot be read"):
                found = known.read(replace(source, content=content))
    except CheckpointError:
        if not _SHARD.search(source.file.name):
            raise
        way = "save them in one: model.save_pretrained(folder, max_shard_size='1000GB')"
        raise CheckpointError(source.file, f"it is one of several files of weights; {way}") from None
    if (source.file.parent / "adapter_config.json").exists():
        notes = (*notes, "the adapter of adapter_config.json in its folder is not applied")
    return replace(found, notes=(*notes, *found.notes))


def _parts(content: Mapping[str, Any]) -> set[str]:
    """Return the parts between dots of the names of all tensors."""
    return {part for _, table in tables_in(content, set()) for name in table for part in name.split(".")}


def _format(content: Mapping[str, Any]) -> Any:
    return next((known for known in FORMATS if known.recognises(content)), None)


def unknown(content: Mapping[str, Any]) -> str:
    """Describe the content of a file without a recognised model, and give advice."""
    found = [table for _, table in tables_in(content, set())]
    names = list(max(found, key=len, default=content))
    shown = ", ".join(safe_repr(name)[:60] for name in names[:_SHOWN]) or "nothing"
    if any(_OF_A_BRIDGE.search(str(name)) for name in names):
        return (
            "its weights are those of a TransformerBridge, a format that anchorlens does not read: pass "
            "the bridge itself, classify(bridge, task), or save the state dict of a HookedTransformer"
        )
    if {"param_groups", "_last_lr"} & content.keys():
        return "it is the state of an optimiser or of its schedule; give the file of the weights"
    if not found:
        return (
            f"it must hold named tensors, by themselves or under one of {', '.join(KEYS)}, got {shown}; save "
            "the weights: torch.save(model.state_dict(), path)"
        )
    parts = _parts(content)
    marked = [what for part, what in _MARKS.items() if part in parts]
    if _ADAPTER in marked:
        return f"it holds {_ADAPTER}"
    if not marked and "encoder" in parts:
        marked = ["an encoder-decoder" if "decoder" in parts else "an encoder"]
    what = f"{marked[0]}, which cannot be read" if marked else "no model that can be read"
    return (
        f"its weights are those of {what} without its class, since their names begin with "
        f"{shown}. Give the class: {WAYS}"
    )
