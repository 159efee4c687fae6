"""A map of names: which weights of a transformer of any class are those of a HookedTransformer.

A map has the names of a HookedTransformer, with `{l}` for the number of a layer, and for each the name in the
other model, with `{l}` and, for heads in modules of their own, `{h}`. Layouts follow from the shapes: a
HookedTransformer stores [in, out], and heads apart. Queries, keys and values of one name are parts of one
matrix. Biases that a map lacks are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from anchorlens.extras.importers import hooked_transformer
from anchorlens.extras.importers.checkpoints import WAYS, check_known
from anchorlens.extras.importers.hooked_transformer import sizes_of
from anchorlens.extras.importers.vocabulary import file_named
from anchorlens.extras.shared.weights import ASSUMED, StoredWeight, bias_of, mapped, pattern_of, with_biases
from anchorlens.files import LoadedModel, Settings, Source, read_training_data, state_dict
from anchorlens.tasks import FIT_THRESHOLD, TrainingDataTask
from anchorlens.texts import safe_repr, safe_text

KIND = "state dict with a map of names"


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
    return {**weights, **{bias_of(ours): f"{one}.bias" for ours, one in modules.items() if biased}}


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
