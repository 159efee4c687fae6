"""Weights within the content of a file: under a key, under a prefix of names, or inside a larger module.

Training loops save a state dict alone or under a key, and wrappers (`torch.compile`, `DataParallel`,
Lightning, a model with a probe on it) put a prefix before its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from torch import Tensor

from anchorlens.texts import safe_repr

KEYS = (
    *("state_dict", "model_state_dict", "model", "model_state", "module", "net", "network", "params"),
    *("weights", "checkpoint", "ema", "model_ema"),
)
"""The keys that are searched first for weights, in this order."""
WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""The parts that wrappers put anywhere into a name."""
_DEEPEST = 5
"""The largest number of parts of a prefix."""
_FEWEST = 3
"""The smallest number of tensors of a model."""
_SHOWN = 3


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

    found = dict(tables_in(content, set()))
    models = {
        (key, prefix): weights
        for key, table in found.items()
        for prefix, weights in models_in(without_wrappers(table), known).items()
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
    notes, table = [], found[key]
    wrappers = sorted({part for name in table for part in name.split(".")} & WRAPPERS)
    if taken := [*(f"{part}." for part in wrappers), *([prefix] if prefix else [])]:
        notes.append(f"taken off the names of its weights: {', '.join(map(safe_repr, taken))}")
    if left := [name for name in without_wrappers(table) if not name.startswith(prefix)]:
        few = ", ".join(map(safe_repr, left[:_SHOWN]))
        notes.append(
            f"{len(left)} tensors whose names do not begin with {safe_repr(prefix)} are ignored: {few}"
        )
    others = [safe_repr(other) for other, _ in models if other != key]
    if others or not usual:
        unread = f", not those under {', '.join(others)}" if others else ""
        notes.append(f"its weights are those under {safe_repr(key)}{unread}")
    return {**records, "state_dict": weights}, tuple(notes)


def tables_in(
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
            yield from tables_in(inner[name], seen, f"{key}.{name}".removeprefix("."), depth - 1)


def without_wrappers(table: dict[str, Tensor], wrappers: Set[str] = WRAPPERS) -> dict[str, Tensor]:
    """Remove the parts of wrappers from the names, unless two names would then be equal."""
    bare = {".".join(p for p in name.split(".") if p not in wrappers): t for name, t in table.items()}
    return bare if len(bare) == len(table) else table


def models_in(
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
            models |= models_in(group, known, f"{prefix}{first}.")
    return models
