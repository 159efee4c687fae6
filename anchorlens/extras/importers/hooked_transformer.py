"""Bare state dicts of a HookedTransformer, with a configuration that describes the model.

The configuration is either ours (the tables task, model, train of `anchorlens train --config`) or a whole
HookedTransformerConfig, `json.dump(model.cfg.to_dict(), file, default=str)`, with an optional table `task`.
Weights with the norms of the variant gpt2 need no more than the table `task`: a note says what is assumed.
The file itself may hold the HookedTransformerConfig, next to the weights.
A model that `ModelConfig` can describe becomes a checkpoint; any other model becomes a HookedTransformer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.importers.checkpoints import (
    WAYS,
    architecture_fields,
    broken_rule,
    check_sizes,
    imported,
    model_of,
    not_used,
    papers_task,
    shape_of,
    taken,
)
from anchorlens.extras.importers.vocabulary import in_order_of, vocabulary_of
from anchorlens.extras.shared.weights import ASSUMED
from anchorlens.files import LoadedModel, Settings, Source, state_dict
from anchorlens.models import ModelConfig, parameter_shapes, without_a_draw
from anchorlens.recipes import RunConfig, TrainConfig, merged, preset_parts
from anchorlens.safe import reading
from anchorlens.tasks import AnchorTask, Task, check_memory
from anchorlens.texts import safe_repr

KIND = "HookedTransformer state dict"

_MOST_LAYERS = 1000
_OURS: dict[str, tuple[Any, ...]] = {
    "act_fn": ("gelu", "gelu_new", "relu"),
    **{name: (value,) for name, value in ASSUMED.items()},
    "original_architecture": (None, "GPT2LMHeadModel"),
    **dict.fromkeys(("clip_qkv", "window_size", "quantization_method"), (None,)),
    **dict.fromkeys(("attn_scores_soft_cap", "output_logits_soft_cap"), (-1,)),
    **dict.fromkeys(("use_logn_attn", "attn_only", "norm_topk_prob", "uses_rms_norm"), (False,)),
    **dict.fromkeys(("final_rms", "post_embedding_ln", "use_attention_sinks"), (False,)),
    **dict.fromkeys(("use_normalization_before_and_after", "use_qk_norm"), (False,)),
}
"""The values of each HookedTransformerConfig field that our architectures have."""
_REQUIRED = ("act_fn", "normalization_type", *ASSUMED)
"""The fields of every HookedTransformerConfig that weights do not determine."""
_FOLDED = "the weights have no norms: they are assumed to be folded into other weights"
_FIELDS = {field.name for field in dataclasses.fields(ModelConfig)}


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameter names belong to a HookedTransformer."""
    return "embed.W_E" in state_dict(content)


def read(source: Source) -> LoadedModel:
    """Read the state dict of the model that the given configuration describes.

    Raises:
        CheckpointError: If the configuration is missing or invalid.
        ValueError: If the weights and the configuration contradict each other.
    """
    tensors, (config, dropped) = source.tensors, _configuration(source)
    _check_names(tensors)
    given = config.values.keys()
    has_tables = not {"model", "train", "preset"}.isdisjoint(given)
    is_assumed = "task" in given and given <= {"task", "vocabulary"} and "ln_final.b" in tensors
    if not (has_tables or is_assumed):
        _check_whole(config.values, _REQUIRED)
    with reading(config.path, "it does not describe this model"):
        sizes = sizes_of(tensors)
        if has_tables or is_assumed:
            ours, train = _our_tables(config.values, sizes)
            notes = [f"its training set is the one that {config.path} describes"] if train else []
            if is_assumed:
                notes = [f"{config.path} has no table model: variant gpt2 with act_fn gelu is assumed"]
        else:
            check_sizes(config.values, sizes, "the configuration")
            fields, train = {**config.values, **sizes}, None
            notes = dropped + not_used(config, {*architecture_fields(), "task", "vocabulary"})
            other = _other_than_ours(fields, tensors)
            if other is not None:
                return _other_model(source, fields, notes, other)
            known = {name: value for name, value in fields.items() if name in _FIELDS}
            variant = "plain" if fields["normalization_type"] is None else "gpt2"
            ours = ModelConfig.from_dict({**known, "variant": variant, "gamma": None})
    return _checkpoint(source, ours, notes, train)


def _configuration(source: Source) -> tuple[Settings, list[str]]:
    """Return the caller's configuration, or the HookedTransformerConfig that the file holds, and notes."""
    given = source.config or Settings(source.file, {})
    least = {*_REQUIRED} if "task" in given.values else {"d_model", "n_layers"}  # a task alone may suffice
    tables = [one for one in source.content.values() if isinstance(one, dict) and one.keys() >= least]
    if not tables or not given.values.keys() <= {"task", "vocabulary"}:
        return given, []
    stored, dropped = Settings.of_weights(given.path, tables[0])
    return Settings(given.path, {**stored.values, **given.values}), dropped


def _check_names(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that have HookedTransformer's names but another layout.

    Raises:
        ValueError: If a name is unknown, or the matrices are transposed.
    """
    own = ("embed.", "pos_embed.", "blocks.", "unembed.", "ln_final.")
    others = [safe_repr(name) for name in tensors if not name.startswith(own)]
    shapes = [tensors[name].shape for name in ("embed.W_E", "pos_embed.W_pos") if name in tensors]
    if [len(shape) for shape in shapes] == [2, 2] and shapes[0][0] == shapes[1][1] != shapes[0][1]:
        others.append(f"embed.W_E with the transposed shape {list(shapes[0])}")
    if others:
        raise ValueError(
            f"every weight must be a weight of a HookedTransformer, got {others[0]}. Give the class: {WAYS}"
        )


def _checkpoint(
    source: Source, ours: ModelConfig, notes: list[str], train: TrainConfig | None
) -> LoadedModel:
    """Make the checkpoint of a model that `ModelConfig` can describe."""
    wanted, tensors = parameter_shapes(ours), source.tensors
    if ours.variant == "gpt2" and not _has_norms(tensors):
        norms = {name: shape for name, shape in wanted.items() if name.endswith((".w", ".b"))}
        full = tensors["embed.W_E"].new_full
        tensors = tensors | {name: full(shape, without_a_draw(name)) for name, shape in norms.items()}
        notes = [*notes, _FOLDED]
    weights = taken(tensors, wanted)
    given = {"vocabulary": vocabulary_of(source.config), "train_config": train}
    return imported(KIND, ours, source.named_task, weights, notes=notes, **given)


def _other_model(source: Source, fields: dict[str, Any], notes: list[str], why: str) -> LoadedModel:
    """Make a HookedTransformer of another architecture than ours."""
    task, tensors = source.named_task, source.tensors
    if fields["normalization_type"] in ("LN", "RMS") and not _has_norms(tensors):
        fields["normalization_type"] += "Pre"
        notes.append(_FOLDED)
    if (vocabulary := vocabulary_of(source.config)) is not None:
        tensors, spelled = in_order_of(task or AnchorTask(), tensors, vocabulary)
        notes += spelled
        fields |= dict.fromkeys(("d_vocab", "d_vocab_out"), len(tensors["embed.W_E"]))
    _check_affordable(fields, task or AnchorTask(), tensors)
    model = model_of(fields, tensors)
    if task is None:
        task, noted = papers_task(fields["d_vocab"], fields["n_ctx"])
        notes += noted
    return LoadedModel(None, task, tuple(notes), model, kind=KIND, why=why)


def _has_norms(tensors: Mapping[str, Tensor]) -> bool:
    return any(name.endswith(("ln1.w", "ln1.b", "ln_final.w", "ln_final.b")) for name in tensors)


def sizes_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Derive the sizes from the shapes of the weights."""
    d_vocab, d_model = shape_of(tensors, "embed.W_E", 2)
    layers = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d{1,9})\.", name))}
    check_number("n_layers", len(layers), maximum=_MOST_LAYERS)
    sizes = {"n_layers": len(layers), "d_model": d_model, "d_vocab": d_vocab}
    sizes["d_vocab_out"] = shape_of(tensors, "unembed.W_U", 2)[1]
    if layers:
        sizes["n_heads"], _, sizes["d_head"] = shape_of(tensors, "blocks.0.attn.W_Q", 3)
    if "pos_embed.W_pos" in tensors:
        sizes["n_ctx"] = shape_of(tensors, "pos_embed.W_pos", 2)[0]
    if "blocks.0.mlp.W_gate.weight" in tensors:
        sizes["num_experts"] = shape_of(tensors, "blocks.0.mlp.W_gate.weight", 2)[0]
        sizes["d_mlp"] = shape_of(tensors, "blocks.0.mlp.experts.0.W_in.weight", 2)[0]
    elif "blocks.0.mlp.W_in" in tensors:
        sizes["d_mlp"] = shape_of(tensors, "blocks.0.mlp.W_in", 2)[1]
    return sizes


def _our_tables(
    values: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[ModelConfig, TrainConfig | None]:
    """Return the model's configuration, and the training configuration if there is one."""
    about_the_file = ("preset", "format", "format_version", "versions", "vocabulary")
    parts = {name: value for name, value in values.items() if name not in about_the_file}
    parts = merged(preset_parts(values["preset"]) if "preset" in values else {}, parts)
    model = parts.get("model", {})
    if "model" in values and not {"preset", "train"} & set(values):
        _check_whole(model, ("variant", "act_fn"))
    check_sizes(model, sizes, "the configuration")
    unknown = {} if "train" in parts else {"gamma": None}
    run = RunConfig.from_dict({**parts, "model": {**unknown, **model, **sizes}})
    return run.model_config, run.train_config if "train" in parts else None


def _check_whole(fields: Mapping[str, Any], required: Iterable[str]) -> None:
    if missing := [name for name in required if name not in fields]:
        raise ValueError(
            "a HookedTransformer state dict must come with its whole configuration, got none of "
            f"{', '.join(missing)}. Give config (--config): the tables task and model with variant and "
            "act_fn, or the model's HookedTransformerConfig, model.cfg.to_dict()"
        )


def _other_than_ours(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    """Find the first rule that excludes a model from our architectures; None if it is one of them."""
    if not fields["n_layers"]:
        return "n_layers must be an integer >= 1, got 0"
    of_sizes = {
        "normalization_type": ("LN", None) if _has_norms(tensors) else ("LN", "LNPre", None),
        "n_key_value_heads": (None, fields["n_heads"]),
        "attn_scale": (-1, fields["d_head"] ** 0.5),
        "gated_mlp": (False, fields.get("num_experts") is not None),
    }
    return broken_rule(fields, {**_OURS, **of_sizes})


def _check_affordable(fields: Mapping[str, Any], task: Task, tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that the weights do not determine and that need far more memory than the file."""
    check_number("d_head", fields.get("d_head"), minimum=1, limit=1_000_000, integer=True)
    largest = 2**28 // max(1, fields["n_layers"] * fields["d_head"])
    check_number("n_ctx", fields.get("n_ctx"), minimum=1, maximum=max(largest, 1), integer=True)
    if fields.get("rotary_dim") is not None:
        check_number("rotary_dim", fields["rotary_dim"], minimum=0, maximum=fields["d_head"], integer=True)
    sizes = {name: fields[name] for name in ("d_model", "d_head", "d_vocab", "n_ctx")}
    sizes |= {name: fields.get(name) or 1 for name in ("n_layers", "n_heads", "d_mlp")}
    check_memory(ModelConfig(**sizes), task, 0, tensors.values())
