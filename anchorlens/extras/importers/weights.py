"""Weights of other software: under a key, under a prefix, or inside a larger module, in one of `FORMATS`.

Training loops save a state dict alone or under a key, and wrappers (`torch.compile`, `DataParallel`,
Lightning, a model with a probe on it) put a prefix before its names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from anchorlens.extras.importers import gpt2, hooked_transformer, released_code
from anchorlens.files import LoadedModel, Settings, Source
from anchorlens.safe import CheckpointError, reading
from anchorlens.texts import safe_repr

KIND = ""
"""`read` names the format."""
FORMATS = (released_code, gpt2, hooked_transformer)
"""The formats, in the order in which they are tried."""

KEYS = (
    *("state_dict", "model_state_dict", "model", "model_state", "module", "net", "network", "params"),
    *("weights", "checkpoint", "ema", "model_ema"),
)
"""The keys that are searched first for weights, in this order."""
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""The parts that wrappers put anywhere into a name."""
_DEEPEST = 5
"""The largest number of parts of a prefix."""
_FEWEST = 3
"""The smallest number of tensors of a model."""
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
    try:
        with reading(source.file):
            content, notes = unwrapped(source.content, lambda content: _format(content) is not None)
            if (known := _format(content)) is None or not _MARKS.keys().isdisjoint(_parts(source.content)):
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
    return {part for _, table in _tables(content, set()) for name in table for part in name.split(".")}


def _format(content: Mapping[str, Any]) -> Any:
    return next((known for known in FORMATS if known.recognises(content)), None)


def unwrapped(
    content: Mapping[str, Any], recognises: Callable[[Mapping[str, Any]], bool]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Put the weights of a file under `state_dict`, with the names that the model uses.

    Args:
        content: the content of the file from the safe reader.
        recognises: the function that returns whether content with weights under `state_dict` belongs to a
            known model.

    Returns:
        The content with the weights under `state_dict` and other values unchanged, and notes for the user. A
        file without a recognised model is returned unchanged.

    Raises:
        ValueError: If the first key with a model holds several models.
        ValueError: If there are several models, and no model is under one of `KEYS`.
    """
    records = {name: value for name, value in content.items() if not isinstance(value, Tensor)}

    def known(table: dict[str, Tensor]) -> bool:
        records["state_dict"] = table
        return recognises(records)

    tables = dict(_tables(content, set()))
    models = {
        (key, prefix): weights
        for key, table in tables.items()
        for prefix, weights in _models(_without_wrappers(table), known).items()
    }
    if not models:
        return content, ()
    (key, prefix), weights = next(iter(models.items()))
    usual = key.split(".")[0] in ("", *KEYS)
    alike = [where for where in models if where[0] == key or not usual]
    if len(alike) > 1:
        shown = ", ".join(safe_repr(".".join(filter(None, where))) for where in alike[:_SHOWN])
        raise ValueError(
            f"the file must hold one model, got {len(alike)} models: {shown}. Save the state dict of one "
            "model"
        )
    notes, table = [], tables[key]
    wrappers = sorted({part for name in table for part in name.split(".")} & _WRAPPERS)
    if taken := [*(f"{part}." for part in wrappers), *([prefix] if prefix else [])]:
        notes.append(f"taken off the names of its weights: {', '.join(map(safe_repr, taken))}")
    if left := [name for name in _without_wrappers(table) if not name.startswith(prefix)]:
        few = ", ".join(map(safe_repr, left[:_SHOWN]))
        notes.append(
            f"{len(left)} tensors whose names do not begin with {safe_repr(prefix)} are ignored: {few}"
        )
    others = [safe_repr(other) for other, _ in models if other != key]
    if others or not usual:
        unread = f", not those under {', '.join(others)}" if others else ""
        notes.append(f"its weights are those under {safe_repr(key)}{unread}")
    return {**records, "state_dict": weights}, tuple(notes)


def _tables(
    content: Mapping[str, Any], seen: set[int], key: str = "", depth: int = 2
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield each table of named tensors with its key, `KEYS` first; "" is the key of the content.

    A table that occurs several times counts once, by its `id` in `seen`.
    """
    named = {name: value for name, value in content.items() if isinstance(name, str)}
    if table := {name: value for name, value in named.items() if isinstance(value, Tensor)}:
        yield key, table
    inner = {name: value for name, value in named.items() if isinstance(value, dict)} if depth else {}
    for name in sorted(inner, key=lambda name: KEYS.index(name) if name in KEYS else len(KEYS)):
        if id(inner[name]) not in seen:
            seen.add(id(inner[name]))
            yield from _tables(inner[name], seen, f"{key}.{name}".removeprefix("."), depth - 1)


def _without_wrappers(table: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the parts of wrappers from the names, unless two names would then be equal."""
    bare = {".".join(p for p in name.split(".") if p not in _WRAPPERS): t for name, t in table.items()}
    return bare if len(bare) == len(table) else table


def _models(
    table: dict[str, Tensor], known: Callable[[dict[str, Tensor]], bool], prefix: str = ""
) -> dict[str, dict[str, Tensor]]:
    """Return prefix -> tensors with this prefix, for each prefix of a recognised model."""
    if known(table):
        return {prefix: table}
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in table.items() if prefix.count(".") < _DEEPEST else ():
        first, dot, rest = name.partition(".")
        if dot:
            groups.setdefault(first, {})[rest] = tensor
    models = {}
    for first, group in groups.items():
        if len(group) >= _FEWEST:
            models |= _models(group, known, f"{prefix}{first}.")
    return models


def unknown(content: Mapping[str, Any]) -> str:
    """Describe the content of a file without a recognised model, and give advice."""
    tables = [table for _, table in _tables(content, set())]
    names = list(max(tables, key=len, default=content))
    shown = ", ".join(safe_repr(name)[:60] for name in names[:_SHOWN]) or "nothing"
    if any(_OF_A_BRIDGE.search(str(name)) for name in names):
        return (
            "its weights are those of a TransformerBridge, a format that anchorlens does not read: pass "
            "the bridge itself, classify(bridge, task), or save the state dict of a HookedTransformer"
        )
    if {"param_groups", "_last_lr"} & content.keys():
        return "it is the state of an optimiser or of its schedule; give the file of the weights"
    if not tables:
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
        f"{shown}. Give the class: --model FILE.py:build with --train-data DATA on the command line, or with "
        "the model in Python classify(model, training_set=(x, y)) or evaluate(model, task)"
    )
