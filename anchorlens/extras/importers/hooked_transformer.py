"""Bare state dicts of a HookedTransformer, with a configuration that describes the model.

The configuration is either ours (the tables task, model, train of `anchorlens train --config`) or a
HookedTransformerConfig, `json.dump(model.cfg.to_dict(), file, default=str)`, with an optional table `task`.
The table `model` may also have fields of a HookedTransformerConfig. A model that `ModelConfig` can describe
becomes a checkpoint; any other model becomes a HookedTransformer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.importers.checkpoints import StateDict, imported, model_of, not_used, papers_task
from anchorlens.extras.importers.vocabulary import in_order_of, vocabulary_of
from anchorlens.files.importers import Source, state_dict
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import parameter_shapes, without_a_draw
from anchorlens.recipes.presets import preset_parts
from anchorlens.recipes.run_config import RunConfig, merged
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.safe import CheckpointError, reading
from anchorlens.tasks import AnchorTask, Task
from anchorlens.tasks.shared.evaluator import check_memory
from anchorlens.texts import safe_repr

KIND = "HookedTransformer state dict"

_MOST_LAYERS = 1000
_BUFFERS = (".attn.mask", ".attn.IGNORE")
_ASSUMED: dict[str, Any] = {
    "act_fn": "gelu",
    "positional_embedding_type": "standard",
    "attention_dir": "causal",
    "eps": 1e-5,
    "use_attn_scale": True,
    "attn_scale": -1,
    "parallel_attn_mlp": False,
    "scale_attn_by_inverse_layer_idx": False,
    "use_local_attn": False,
    "use_logn_attn": False,
    "attn_scores_soft_cap": -1,
    "output_logits_soft_cap": -1,
}
"""The assumed values of fields that neither the names nor the shapes of weights determine."""
_OURS: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in _ASSUMED.items()},
    "act_fn": ("gelu", "gelu_new", "relu"),
    "normalization_type": ("LN", "LNPre"),
    "original_architecture": (None, "GPT2LMHeadModel"),
    **dict.fromkeys(("clip_qkv", "window_size", "quantization_method"), (None,)),
    **dict.fromkeys(("attn_only", "norm_topk_prob", "uses_rms_norm", "final_rms"), (False,)),
    **dict.fromkeys(("post_embedding_ln", "use_attention_sinks"), (False,)),
    **dict.fromkeys(("use_normalization_before_and_after", "use_qk_norm"), (False,)),
}
"""The values of each HookedTransformerConfig field that our architectures have."""
_WITHOUT_EFFECT = (
    *("attn_types", "decoder_start_token_id", "layer_norm_folding", "tie_word_embeddings"),
    *("train_seq_length", "ungroup_grouped_query_attention", "use_attn_in", "use_attn_result"),
    *("use_hook_mlp_in", "use_hook_tokens", "use_split_qkv_input"),
)
_BESIDE = {"task", "vocabulary"}
_FIELDS = {field.name for field in dataclasses.fields(ModelConfig)}
_OF_OTHER_POSITIONS = re.compile(r"rotary_.*|NTK_.*|yarn_.*|use_\w*_rope|relative_attention_.*")
"""The fields that have no effect on a model with learned positions."""


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameter names belong to a HookedTransformer."""
    return "embed.W_E" in state_dict(content)


def read(source: Source) -> LoadedModel:
    """Read the state dict of the model that the given configuration describes.

    Raises:
        CheckpointError: If the configuration is missing or invalid.
        ValueError: If the weights and the configuration contradict each other.
    """
    _check_names(source.tensors)
    if source.config is None:
        raise CheckpointError(
            source.file,
            "a HookedTransformer state dict must come with its configuration, got none. Give config "
            "(--config): a TOML or JSON file with the tables task and model, or the model's "
            "HookedTransformerConfig",
        )
    config, tensors = source.config, source.tensors
    task = source.named_task
    vocabulary = vocabulary_of(config)
    train = None
    with reading(config.path, "it does not describe this model"):
        sizes = _sizes(tensors)
        tables = any(isinstance(config.values.get(name), dict) for name in ("model", "train"))
        if tables or "preset" in config.values or set(config.values) <= _BESIDE:
            said, train = _our_tables(config.values, sizes)
            notes = [f"its training set is the one that {config.path} describes"] if train else []
        else:
            said = {name: value for name, value in config.values.items() if name not in _BESIDE}
            notes = not_used(config, {name for name in config.values if _is_used(name) or name in _BESIDE})
        for name, size in sizes.items():
            if said.get(name) not in (None, size) and not (name == "d_vocab_out" and said[name] == -1):
                raise ValueError(
                    f"{name} must be {size} as in the weights, got {safe_repr(said[name])} in the "
                    f"configuration. Correct {name}"
                )
        fields, assumed = _completed(said, tensors)
        notes += [f"{config.path} {note}" for note in assumed]
        other = _other_than_ours(fields, sizes)
        if other and (train or fields.get("variant")):
            raise ValueError(f"in a model of anchorlens, {other}. Omit the fields variant, train and preset")
    if other is None:
        return _checkpoint(source, fields | sizes, train, notes)
    with reading(config.path, "it does not describe this model"):
        if vocabulary is not None:
            tensors, spelled = in_order_of(task or AnchorTask(), tensors, vocabulary)
            notes += spelled
            sizes |= dict.fromkeys(("d_vocab", "d_vocab_out"), len(tensors["embed.W_E"]))
        fields = {name: value for name, value in (fields | sizes).items() if name != "variant"}
        _check_affordable(fields, task or AnchorTask(), tensors)
        model, noted = model_of(fields, tensors), []
        if task is None:
            task, noted = papers_task(fields["d_vocab"], fields["n_ctx"])
        return LoadedModel(None, task, (*notes, *noted), model, kind=KIND, why=other)


def _check_names(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that have HookedTransformer's names but another layout.

    Raises:
        ValueError: If a name is unknown, or the matrices are transposed.
    """
    instead = (
        "Use evaluate(model, task) with the model itself, or give the probes a HookedTransformer with its "
        "weights"
    )
    for name in tensors:
        if not name.startswith(("embed.", "pos_embed.", "blocks.", "unembed.", "ln_final.")):
            raise ValueError(
                f"every weight must be a weight of a HookedTransformer, got {safe_repr(name)}. {instead}"
            )
    embedding, positions = (tensors.get(name) for name in ("embed.W_E", "pos_embed.W_pos"))
    if embedding is None or positions is None or embedding.ndim != 2 or positions.ndim != 2:
        return
    if embedding.shape[0] == positions.shape[1] != embedding.shape[1]:
        raise ValueError(
            "embed.W_E must have shape [d_vocab, d_model], got the transposed shape "
            f"{list(embedding.shape)}. {instead}"
        )


def _checkpoint(
    source: Source, fields: Mapping[str, Any], train: TrainConfig | None, notes: list[str]
) -> LoadedModel:
    """Make the checkpoint of a model that `ModelConfig` can describe."""
    assert source.config is not None
    with reading(source.config.path, "it does not describe this model"):
        ours = {name: value for name, value in fields.items() if name in _FIELDS and value is not None}
        unknown = {} if train or "gamma" in fields else {"gamma": None}
        config = ModelConfig.from_dict({**unknown, **ours, "variant": _variant(fields)})
    weights = _weights(source.tensors, config)
    if not fields.get("variant") and config.variant == "gpt2":
        notes = [*notes, "its variant is not named: it is read as gpt2"]
    given = {"vocabulary": vocabulary_of(source.config), "train_config": train}
    return imported(KIND, config, source.named_task, weights, notes=notes, **given)


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Derive the sizes from the shapes of the weights."""

    def shape(name: str, n_dims: int) -> torch.Size:
        if name not in tensors or tensors[name].ndim != n_dims:
            raise ValueError(
                f"the weights must contain {name} with {n_dims} dimensions, got "
                f"{tensors[name].ndim if name in tensors else 'no tensor of this name'}. Use other weights"
            )
        return tensors[name].shape

    d_vocab, d_model = shape("embed.W_E", 2)
    layers = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d{1,9})\.", name))}
    check_number("n_layers", len(layers), maximum=_MOST_LAYERS)
    sizes = {"n_layers": len(layers), "d_model": d_model, "d_vocab": d_vocab}
    sizes["d_vocab_out"] = shape("unembed.W_U", 2)[1]
    if layers:
        sizes["n_heads"], _, sizes["d_head"] = shape("blocks.0.attn.W_Q", 3)
    if "pos_embed.W_pos" in tensors:
        sizes["n_ctx"] = shape("pos_embed.W_pos", 2)[0]
    if "blocks.0.mlp.W_gate.weight" in tensors:
        sizes["num_experts"] = shape("blocks.0.mlp.W_gate.weight", 2)[0]
        sizes["d_mlp"] = shape("blocks.0.mlp.experts.0.W_in.weight", 2)[0]
    elif "blocks.0.mlp.W_in" in tensors:
        sizes["d_mlp"] = shape("blocks.0.mlp.W_in", 2)[1]
    return sizes


def _our_tables(
    values: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[dict[str, Any], TrainConfig | None]:
    """Return the model's fields, and the training configuration if there is one."""
    about_the_file = ("preset", "format", "format_version", "versions", "vocabulary")
    parts = {name: value for name, value in values.items() if name not in about_the_file}
    if "preset" in values:
        parts = merged(preset_parts(values["preset"]), parts)
    hooked: dict[str, Any] = {}
    if isinstance(model := parts.get("model"), dict):
        hooked = {name: value for name, value in model.items() if name not in _FIELDS and _is_used(name)}
        others = {name: value for name, value in model.items() if name not in hooked}
        if others.get("act_fn") not in (None, *_OURS["act_fn"]):
            hooked["act_fn"] = others.pop("act_fn")
        parts = {**parts, "model": others}
    run = RunConfig.from_dict(merged({"model": sizes}, parts))
    if str(hooked.get("normalization_type", "")).lower() == "none":  # TOML has no null
        hooked["normalization_type"] = None
    of_a_run = {"variant": run.model_config.variant, "act_fn": None}  # which has its own default for each
    whole = of_a_run if {"preset", "train"} & set(values) else {}
    return {**whole, **parts.get("model", {}), **hooked}, run.train_config if "train" in parts else None


def _completed(said: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], list[str]]:
    """Complete the fields from the weights' names and from assumptions, and note the assumptions.

    Raises:
        ValueError: If the kind of the norms is not given, or names contradict the configuration.
    """
    fields = dict(said)
    notes = []
    variant = said.get("variant")
    weight, bias = (
        any(name.endswith(f"ln1.{x}") or name == f"ln_final.{x}" for name in tensors) for x in "wb"
    )
    if "normalization_type" not in said:
        if not weight and not variant:
            raise ValueError(
                "normalization_type must be given for weights without norms, got none. In the table model, "
                "set 'LNPre' or 'RMSPre' if process_weights_ folded the norms into other weights, and "
                "otherwise 'none'"
            )
        own = "RMS" if weight and not bias else "LN"
        fields["normalization_type"] = None if variant == "plain" else own
    norm = fields["normalization_type"]
    if norm in ("LN", "RMS") and not weight and variant in (None, "gpt2"):
        fields["normalization_type"] = f"{norm}Pre"
        notes.append(
            f"describes norms ({norm}), but the weights have no norms: they are assumed to be folded into "
            f"other weights"
        )
    elif norm not in ("LN", "RMS") and weight:
        raise ValueError(
            f"normalization_type must be LN or RMS for weights with norms, got {safe_repr(norm)}. Correct "
            "normalization_type"
        )
    assumed = {name: value for name, value in _ASSUMED.items() if name not in said}
    if variant:
        own = ModelConfig(variant=variant).activation
        assumed = {"act_fn": own} if "act_fn" in assumed else {}
    else:
        fields |= assumed
    if assumed:
        words = (
            f"{name} {'sqrt(d_head)' if name == 'attn_scale' else value}" for name, value in assumed.items()
        )
        notes.append(f"does not contain these fields, for which defaults are assumed: {', '.join(words)}")
    return fields, notes


def _other_than_ours(fields: Mapping[str, Any], sizes: Mapping[str, int]) -> str | None:
    """Find the first rule that excludes a model from our architectures; None if it is one of them."""
    if not sizes["n_layers"]:
        return "n_layers must be an integer >= 1, got 0"
    of_sizes = {
        "n_key_value_heads": (None, sizes["n_heads"]),
        "attn_scale": (-1, sizes["d_head"] ** 0.5),
        "num_experts": (sizes.get("num_experts"),),
        "gated_mlp": (False, "num_experts" in sizes),
    }
    if _variant(fields) == "plain":
        of_sizes["normalization_type"] = (None,)
    for name, allowed in {**_OURS, **of_sizes}.items():
        value = sizes.get(name, fields.get(name, allowed[0]))
        if value not in allowed and not (name == "act_fn" and value is None and fields.get("variant")):
            choices = " or ".join(repr(choice) for choice in allowed)
            return f"{name} must be {choices}, got {safe_repr(value)}"
    return None


def _variant(fields: Mapping[str, Any]) -> str:
    """Find the variant that the fields name, or the variant with these norms."""
    return fields.get("variant") or ("plain" if fields["normalization_type"] is None else "gpt2")


def _is_used(name: str) -> bool:
    """Check whether a HookedTransformerConfig's field affects what the model computes."""
    known = {*_OURS, *_WITHOUT_EFFECT, *_FIELDS, "n_key_value_heads", "gated_mlp"}
    return name in known or _OF_OTHER_POSITIONS.fullmatch(name) is not None


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


def _weights(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    state = StateDict(tensors)
    wanted = parameter_shapes(config)
    norms = {name for name in wanted if name.endswith((".w", ".b"))}
    folded = norms if config.variant == "gpt2" and not norms & set(tensors) else ()
    weights = {}
    for name, shape in wanted.items():
        identity = tensors["embed.W_E"].new_full(shape, without_a_draw(name)) if name in folded else None
        weights[name] = state.take(name, *shape) if identity is None else identity
    state.finish(_BUFFERS)
    return weights
