"""A map of names: which weights of a transformer of any class are those of a HookedTransformer.

A map has the names of a HookedTransformer, with `{l}` for the number of a layer, and for each the name in the
other model, with `{l}` and, for heads in modules of their own, `{h}`. Layouts follow from the shapes: a
HookedTransformer stores [in, out], and heads apart. Queries, keys and values of one name are parts of one
matrix. Biases that a map lacks are zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anchorlens.configuration import Config, check_number, number, suggestion
from anchorlens.extras.importers import hooked_transformer
from anchorlens.extras.importers.checkpoints import WAYS, check_known
from anchorlens.extras.importers.hooked_transformer import ASSUMED, sizes_of
from anchorlens.extras.importers.vocabulary import file_named
from anchorlens.files import LoadedModel, Settings, Source, read_training_data, state_dict
from anchorlens.tasks import FIT_THRESHOLD, TrainingDataTask
from anchorlens.texts import safe_repr, safe_text

_FROM_RESIDUAL = ("W_Q", "W_K", "W_V", "W_in", "W_gate", "W_U")
"""The matrices [d_model, out]; the others are [in, d_model]."""
KIND = "state dict with a map of names"
_WITH_BIAS = (".W_Q", ".W_K", ".W_V", ".W_O", ".W_in", ".W_out", ".W_U", ".w")


@dataclass(frozen=True)
class StoredWeight(Config):
    """The place of a HookedTransformer's weight in another model."""

    name: str = ""
    """The name in the other model."""
    transpose: bool | None = None
    """Whether the matrix is stored as [out, in]. Default: by its shape, and [out, in] for a square matrix."""
    part: int | None = number(None, minimum=0, maximum=2)
    """The third of a matrix of queries, keys and values. Default: in the order Q, K, V."""
    per_head: bool = False
    """Whether such a matrix has the queries, keys and values of each head next to each other."""


def recognises(names: object, content: Mapping[str, Any]) -> bool:
    """Check whether the weights have the token embedding of a map of names."""
    embedding = entries(names).get("embed.W_E")
    return embedding is not None and embedding.name in state_dict(content)


def read(source: Source) -> LoadedModel:
    """Read the weights of a file with the tables `map` and `model` of the caller's configuration.

    Only training data can show that the map is right. The configuration names their file, `train_data`.

    Raises:
        CheckpointError: If the configuration or the training data cannot be read.
        ValueError: If the map is invalid, the weights do not fit it, or the model answers less than 0.90 of
            the training data.
    """
    settings = source.config or Settings(source.path, {})
    values = dict(settings.values)
    names, model = entries(values.pop("map")), values.pop("model", {})
    file = file_named(settings, "train_data", values.pop("train_data", None))
    weights = mapped(source.tensors, names, {**values, **model}.get("n_heads"))
    fields = {"normalization_type": "LN", **ASSUMED, **architecture(weights, names), **values, **model}
    weights, notes = with_biases(weights, fields["normalization_type"])
    if "variant" in model:
        fields = {**values, "model": model}
    config = Settings(settings.path, fields)
    found = hooked_transformer.read(replace(source, content=weights, config=config))
    data = read_training_data(file)
    train = TrainingDataTask.of(data).evaluate(found.model, training_set=data).measures["train"]
    if train is None or train.value < FIT_THRESHOLD:
        raise ValueError(
            f"a model with mapped names must answer {FIT_THRESHOLD:.2f} of {file.name}, got {train}. Correct "
            f"the map or the fields of the model, or give its class: {WAYS}"
        )
    notes.append(f"its names are mapped; the check of the map is the accuracy on {file.name}, {train}")
    if left := unused(source.tensors, names):
        notes.append(f"{len(left)} tensors that the map lacks are ignored: {safe_repr(left)}")
    return replace(found, notes=(*notes, *found.notes), kind=KIND)


def entries(names: object) -> dict[str, StoredWeight]:
    """Check a map of names, and find the parts of fused matrices.

    Raises:
        ValueError: If the map is not a table, or a field in it is not allowed.
    """
    if not isinstance(names, Mapping):
        raise ValueError(
            f"the map of names must be a table from our names to yours, got {safe_repr(names)}. Correct it"
        )
    found = {}
    for key, value in names.items():
        try:
            one = StoredWeight.from_dict(value if isinstance(value, Mapping) else {"name": value})
        except ValueError as error:
            raise ValueError(f"{safe_text(key)} of the map of names: {error}") from None
        found[str(key)] = one
    fused = [entry.name for key, entry in found.items() if key.endswith((*"QKV",))]
    for key, entry in found.items():
        if key.endswith((*"QKV",)) and fused.count(entry.name) > 2 and entry.part is None:
            found[key] = replace(entry, part="QKV".index(key[-1]))
    return found


def of_modules(modules: Mapping[str, str], *, transpose: bool, biased: bool = True) -> dict[str, Any]:
    """Return the map of modules with weights and biases, whose matrices are stored as [out, in] or not."""
    weights = {ours: {"name": f"{one}.weight", "transpose": transpose} for ours, one in modules.items()}
    return {**weights, **{_bias_of(ours): f"{one}.bias" for ours, one in modules.items() if biased}}


def weights_of(
    tensors: Mapping[str, Tensor], names: Mapping[str, Any], n_heads: object, buffers: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Return the weights of a known model, which has all weights of its map and no others.

    Args:
        tensors: the weights by the model's names.
        names: the map.
        n_heads: the number of heads.
        buffers: the ends of the names of tensors that are ignored.

    Raises:
        ValueError: If a weight is missing or unknown, or does not divide into heads.
    """
    known = entries(names)
    weights, _ = with_biases(mapped(tensors, known, n_heads))
    layers = range(sizes_of(weights)["n_layers"])
    used = dict.fromkeys(one.name.replace("{l}", str(layer)) for one in known.values() for layer in layers)
    if missing := [name for name in used if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")
    check_known((name for name in tensors if name not in used), buffers)
    return weights


def mapped(
    tensors: Mapping[str, Tensor],
    names: Mapping[str, StoredWeight],
    n_heads: object,
    *,
    square_is_stored: bool = False,
) -> dict[str, Tensor]:
    """Return weights with a HookedTransformer's names and layout.

    Args:
        tensors: the weights by the other model's names.
        names: the map.
        n_heads: the number of heads, for matrices with merged heads.
        square_is_stored: whether square matrices are stored as [in, out], where the map does not say it.

    Raises:
        ValueError: If a weight is missing, or has no such layout.
    """
    patterns = [pattern_of(entry) for entry in names.values()]
    layers = {one[1] for pattern in patterns for name in tensors if (one := pattern.fullmatch(name))}
    numbers, flat = sorted(filter(None, layers), key=int), {}
    for key, entry in names.items():
        for k, layer in enumerate(numbers if "{l}" in key else [""]):
            own = _stored(tensors, entry.name.replace("{l}", layer))
            flat[key.replace("{l}", str(k))] = (own, entry)
    embedding, entry = flat.get("embed.W_E", (torch.empty(0, device="cpu"), StoredWeight()))
    if embedding.ndim != 2:
        raise ValueError(
            "the map of names must have embed.W_E, a token embedding [d_vocab, d_model], got shape "
            f"{list(embedding.shape)}. Correct the map"
        )
    d_model, found = embedding.shape[0 if entry.transpose else -1], {}
    for key, (tensor, entry) in flat.items():
        kind = key.rpartition(".")[2]
        if tensor.ndim > 1 and kind.startswith("W_"):
            fits = [size == d_model for size in tensor.shape[-2:]]
            turned = not fits[kind not in _FROM_RESIDUAL]
            if fits[0] == fits[1]:
                turned = not square_is_stored and kind not in ("W_E", "W_pos")
            turned = turned if entry.transpose is None else entry.transpose
            tensor = tensor.transpose(-1, -2) if turned else tensor
        found[key] = _in_heads(tensor, kind, entry, n_heads)
    return found


def with_biases(weights: Mapping[str, Tensor], norm: object = "LN") -> tuple[dict[str, Tensor], list[str]]:
    """Return mapped weights with zeros for the biases that they lack, and a note if there are any.

    Args:
        weights: the weights by a HookedTransformer's names.
        norm: the `normalization_type`; "RMS" has no biases.
    """
    found, absent = dict(weights), []
    for name, weight in weights.items():
        bias = _bias_of(name)
        if name.endswith(_WITH_BIAS) and bias not in found and not (norm == "RMS" and name.endswith(".w")):
            shape = weight.shape[::2] if weight.ndim == 3 and name[-1] in "QKV" else weight.shape[-1:]
            found[bias] = weight.new_zeros(shape)
            absent.append(bias)
    note = f"{len(absent)} biases that the map lacks are zero: {safe_repr(absent)}"
    return found, [note] if absent else []


def architecture(weights: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a HookedTransformerConfig that follow from mapped weights."""
    kinds = {name.rpartition(".")[2] for name in names}
    return {
        **sizes_of(weights),
        **({} if "W_in" in kinds else {"attn_only": True, "act_fn": "relu"}),
        **({} if "w" in kinds else {"normalization_type": None}),
        **({"normalization_type": "LN"} if "b" in kinds else {}),
        "gated_mlp": "W_gate" in kinds,
    }


def unused(tensors: Iterable[str], names: Mapping[str, StoredWeight]) -> list[str]:
    """Return the names of the other model that a map does not use."""
    patterns = [pattern_of(entry) for entry in names.values()]
    return [name for name in tensors if not any(pattern.fullmatch(name) for pattern in patterns)]


def pattern_of(entry: StoredWeight) -> re.Pattern[str]:
    """Return the pattern of the names that a name with `{l}` and `{h}` stands for; group 1 is the layer."""
    numbered = re.escape(entry.name).replace(r"\{h\}", r"\d{1,9}")
    layer = r"(\d{1,9})"
    return re.compile(numbered.replace(r"\{l\}", layer, 1) if r"\{l\}" in numbered else f"{numbered}()")


def _stored(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the tensor of a name, or the stacked tensors [head, ...] of a name with `{h}`.

    Raises:
        ValueError: If the model has no such tensors.
    """
    names = [name.replace("{h}", str(k)) for k in range(len(tensors) if "{h}" in name else 1)]
    found = [tensors[one] for one in names if one in tensors]
    if len({one.shape for one in found}) != 1:
        raise ValueError(f"{safe_text(name)} is missing in the weights ({suggestion(name, list(tensors))})")
    if "{h}" in name:
        return torch.stack(found)
    return found[0].squeeze(0) if found[0].ndim == 3 else found[0]


def _in_heads(tensor: Tensor, kind: str, entry: StoredWeight, n_heads: Any) -> Tensor:
    """Separate the heads of a weight, and take its part of a fused matrix.

    Raises:
        ValueError: If the number of heads is not known, or does not divide the weight.
    """
    if kind[-1:] not in (*"QKVO",) or tensor.ndim != 1 + kind.startswith("W_") or kind == "b_O":
        return tensor
    check_number("n_heads, which config or the table [model] gives,", n_heads, minimum=1, integer=True)
    parts = 1 if entry.part is None else 3
    try:
        if kind == "W_O":
            return tensor.unflatten(0, (n_heads, -1))
        divided = tensor.unflatten(-1, (n_heads, parts, -1) if entry.per_head else (parts, n_heads, -1))
        return divided.select(-2 if entry.per_head else -3, entry.part or 0).movedim(-2, 0)
    except RuntimeError:
        raise ValueError(
            f"n_heads must divide {entry.name} of shape {list(tensor.shape)}"
            f"{', which has three parts' if parts > 1 else ''}, got {n_heads}. Correct n_heads or the map"
        ) from None


def _bias_of(name: str) -> str:
    return name.replace(".W_", ".b_") if ".W_" in name else f"{name[:-1]}b"
