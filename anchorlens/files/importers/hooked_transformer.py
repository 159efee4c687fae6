"""Bare state dicts of a HookedTransformer, with a configuration that says what they are.

The configuration is either ours (tables task, model, train, as `anchorlens train --config` reads) or a
HookedTransformerConfig, `json.dump(model.cfg.to_dict(), file, default=str)`, with a table `task` if you like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import PAPERS_TASK, Imported, Source, StateDict, imported, state_dict
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import parameter_shapes
from anchorlens.runs.presets import preset_parts
from anchorlens.runs.run_config import RunConfig, merged
from anchorlens.runs.train_config import TrainConfig
from anchorlens.safe import CheckpointError, reading, safe_repr
from anchorlens.tasks.two_anchor.task import AnchorTask

KIND = "HookedTransformer state dict"

_BUFFERS = (".attn.mask", ".attn.IGNORE")
_EXPECTED: dict[str, tuple[Any, ...]] = {
    "normalization_type": ("LN", "LNPre"),
    "act_fn": ("gelu", "gelu_new", "relu"),
    "positional_embedding_type": ("standard",),
    "attention_dir": ("causal",),
    "eps": (1e-5,),
    "use_attn_scale": (True,),
    "attn_scores_soft_cap": (-1,),
    "output_logits_soft_cap": (-1,),
    **dict.fromkeys(("clip_qkv", "window_size", "quantization_method"), (None,)),
    **dict.fromkeys(
        (
            "attn_only",
            "norm_topk_prob",
            "uses_rms_norm",
            "final_rms",
            "parallel_attn_mlp",
            "post_embedding_ln",
            "scale_attn_by_inverse_layer_idx",
            "use_attention_sinks",
            "use_local_attn",
            "use_logn_attn",
            "use_normalization_before_and_after",
            "use_qk_norm",
        ),
        (False,),
    ),
}
"""Field of a HookedTransformerConfig -> the values that our architectures have."""
_REQUIRED = ("normalization_type", "act_fn")


def file_in(folder: Path, config: Settings) -> Path | None:
    """None: a state dict is a single file, not a folder."""
    return None


def recognises(content: Mapping[str, Any]) -> bool:
    """Whether the parameter names are HookedTransformer's."""
    return "embed.W_E" in state_dict(content)


def read(source: Source) -> Imported:
    """Read a state dict as the model that the given configuration describes.

    Raises:
        CheckpointError: there is no configuration, or it makes no sense.
        ValueError: weights and configuration contradict each other.
    """
    if source.config is None:
        raise CheckpointError(
            source.file,
            "a bare HookedTransformer state dict does not say what it is: give config (--config), a TOML or "
            "JSON file with tables task and model as `anchorlens train --config` reads, or the model's "
            "HookedTransformerConfig",
        )
    tensors = source.tensors
    task = source.config.task() or source.task
    notes = [PAPERS_TASK] if task is None else []
    train = None
    shapes = _shapes(tensors)
    with reading(source.config.path, "it does not describe this model"):
        values = source.config.values
        ours = any(name in values for name in ("model", "train", "preset"))
        if ours or set(values) <= {"task", "vocabulary"}:
            model, train = _our_tables(values, shapes)
            notes += [f"its training set is the one that {source.config.path} describes"] if train else []
        else:
            model = _hooked_config(values, shapes)
            notes += ["its variant is not named: it is read as gpt2"] if "variant" not in model else []
        for name, size in shapes.items():
            if model.get(name, size) != size:
                raise ValueError(f"{name} is {safe_repr(model[name])} there, but the weights have {size}")
        unknown = {} if train or "gamma" in model else {"gamma": None}
        config = ModelConfig.from_dict({**unknown, **model, **shapes})
    weights = _weights(tensors, config)
    return imported(
        config,
        task or AnchorTask(),
        weights,
        notes=notes,
        train_config=train,
        vocabulary=source.config.vocabulary(),
    )


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Every size of a ModelConfig, from the shapes of the weights."""

    def shape(name: str, n_dims: int) -> torch.Size:
        if name not in tensors or tensors[name].ndim != n_dims:
            raise ValueError(
                f"{name} is missing or has no {n_dims} dimensions; models with learned positions, "
                "attention and a plain MLP or a mixture of experts in every block can be read, no others"
            )
        return tensors[name].shape

    d_vocab, d_model = shape("embed.W_E", 2)
    n_heads, _, d_head = shape("blocks.0.attn.W_Q", 3)
    layers = [re.fullmatch(r"blocks\.(\d{1,9})\.attn\.W_Q", name) for name in tensors]
    router, expert = "blocks.0.mlp.W_gate.weight", "blocks.0.mlp.experts.0.W_in.weight"
    experts = {"num_experts": shape(router, 2)[0]} if router in tensors else {}
    return {
        "n_layers": len([layer for layer in layers if layer]),
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_head,
        "d_mlp": shape(expert, 2)[0] if experts else shape("blocks.0.mlp.W_in", 2)[1],
        "d_vocab": d_vocab,
        "n_ctx": shape("pos_embed.W_pos", 2)[0],
        **experts,
    }


def _our_tables(
    values: Mapping[str, Any], shapes: Mapping[str, int]
) -> tuple[dict[str, Any], TrainConfig | None]:
    """The model's fields, and the training configuration if there is one."""
    about_the_file = ("preset", "format", "format_version", "versions", "vocabulary")
    parts = {name: value for name, value in values.items() if name not in about_the_file}
    if "preset" in values:
        parts = merged(preset_parts(values["preset"]), parts)
    run = RunConfig.from_dict(merged({"model": shapes}, parts))
    return dict(parts.get("model", {})), run.train_config if "train" in parts else None


def _hooked_config(values: Mapping[str, Any], shapes: Mapping[str, int]) -> dict[str, Any]:
    """The values of a HookedTransformerConfig, as fields of a ModelConfig."""
    attention = {
        "d_vocab_out": (None, -1, shapes["d_vocab"]),
        "n_key_value_heads": (None, shapes["n_heads"]),
        "attn_scale": (-1, shapes["d_head"] ** 0.5),
        "num_experts": (shapes.get("num_experts"),),
        "gated_mlp": (False, "num_experts" in shapes),
    }
    for name, allowed in {**_EXPECTED, **attention}.items():
        if name not in values and name not in _REQUIRED:
            continue
        if values.get(name) not in allowed:
            choices = " or ".join(repr(value) for value in allowed)
            raise ValueError(
                f"{name} must be {choices}, got {safe_repr(values.get(name))}; no other can be read"
            )
    ours = ("act_fn", "variant", "gamma", "experts_per_token", *shapes)
    return {name: values[name] for name in ours if values.get(name) is not None}


def _weights(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    state = StateDict(tensors)
    wanted = parameter_shapes(config)
    norms = {name for name in wanted if name.endswith((".w", ".b"))}
    folded = {} if norms & set(tensors) else {name: float(name.endswith(".w")) for name in norms}
    weights = {
        name: tensors["embed.W_E"].new_full(shape, folded[name])
        if name in folded
        else state.take(name, *shape)
        for name, shape in wanted.items()
    }
    state.finish(_BUFFERS)
    return weights
