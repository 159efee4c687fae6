"""The reader of checkpoints of the papers' released code: config.json and model/model_<N>.pt.

Their architecture is our variant `released`. Their Linear stores [out, in] and merges heads; we store
[in, out] and keep heads apart. Source: the released code of arXiv 2501.08537.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from einops import rearrange
from torch import Tensor

from anchorlens.configuration import check_choice, check_number
from anchorlens.extras.importers.checkpoints import StateDict, config_beside, imported, not_used
from anchorlens.extras.importers.released_task import trained
from anchorlens.files import LoadedModel, Settings, Source, state_dict
from anchorlens.models import PARTS, ModelConfig
from anchorlens.safe import CheckpointError, reading
from anchorlens.texts import safe_repr

_MODELS = ("GPT2_init_for_diff_part_prenorm",)
_GAMMAS = {f"gamma_{part}": f"{part}_std" for part in PARTS}
_SHAPES = {
    "n_layers": "n_layers",
    "n_heads": "n_heads",
    "d_model": "d_model",
    "d_head": "d_k",
    "d_mlp": "d_feedforward",
    "d_vocab": "vocab_size",
    "n_ctx": "max_pos",
}


def file_in(folder: Path, config: Settings) -> Path | None:
    """Find the last model in the folder of a run.

    Raises:
        CheckpointError: If the run has no model.
    """
    if "d_feedforward" not in config.values:
        return None
    models = {_step(file): file for file in (folder / "model").glob("model_*.pt")}
    steps = [step for step in models if step is not None]
    if not steps:
        raise CheckpointError(
            folder,
            "the folder must hold model/model_<N>.pt, got none. Wait until the run writes a checkpoint",
        )
    return models[max(steps)]


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether the parameter names belong to a model of the released code."""
    return "decoder.layers.0.dec_self_attn.W_Q.weight" in state_dict(content)


def read(source: Source) -> LoadedModel:
    """Read a model of the released code, with the config.json of its run.

    Raises:
        CheckpointError: If config.json is missing or cannot be read as a ModelConfig and an AnchorTask.
        ValueError: If the weights do not fit the configuration.
    """
    theirs = config_beside(source.file, source.file.parent.parent, source.file.parent)
    given = source.named_task
    with reading(theirs.path, "its configuration cannot be read"):
        config, run = _model(theirs.values), trained(theirs.values, given)
    notes = [f"{theirs.path}: {note}" for note in run.notes]
    if source.config is not None and (given is None or run.task != given):
        notes.append(f"{source.config.path} was not needed: {theirs.path} has the configuration")
    step = _step(source.file)
    if step is None:
        notes.append("its name is not model_<N>.pt: its step is not known")
    used = {"model", *_GAMMAS.values(), *_SHAPES.values(), "d_v", *run.used}
    recipe = {
        name: value
        for name, value in theirs.values.items()
        if name not in used - {"data_size"} and _is_plain(value)
    }
    notes += not_used(theirs, used)
    weights = _weights(StateDict(source.tensors), config)
    found = {"step": step, "metrics": {"recipe": recipe}, "overlap": run.overlap}
    return imported("released code", config, run.task, weights, notes=notes, **found)


def _model(theirs: Mapping[str, Any]) -> ModelConfig:
    check_choice("model", theirs.get("model"), _MODELS)
    if theirs.get("d_v") != theirs.get("d_k"):
        raise ValueError(
            f"d_v must equal d_k, {safe_repr(theirs.get('d_k'))}, got {safe_repr(theirs.get('d_v'))}. "
            "Correct config.json"
        )
    gammas = {name: theirs.get(std) for name, std in _GAMMAS.items()}
    for name, std in _GAMMAS.items():
        check_number(std, gammas[name])
    shapes: dict[str, Any] = {ours: theirs.get(name) for ours, name in _SHAPES.items()}
    common = gammas["gamma_embedding"]
    own: dict[str, Any] = {name: None if gamma == common else gamma for name, gamma in gammas.items()}
    return ModelConfig(variant="released", gamma=common or 0.0, **own, **shapes)


def _weights(state: StateDict, config: ModelConfig) -> dict[str, Tensor]:
    heads = config.n_heads
    d_model = config.d_model
    d_mlp = config.d_mlp
    d_vocab = config.d_vocab
    d_z = heads * config.d_head
    weights = {
        "embed.W_E": state.take("embedding.tgt_emb.weight", d_vocab, d_model),
        "pos_embed.W_pos": state.take("embedding.pos_emb.weight", config.n_ctx, d_model),
        "unembed.W_U": state.take("projection.weight", d_vocab, d_model).T,
        "unembed.b_U": state.take("projection.bias", d_vocab),
        "ln_final.w": state.take("layernorm.weight", d_model),
        "ln_final.b": state.take("layernorm.bias", d_model),
    }
    for layer in range(config.n_layers):
        attention, mlp = f"decoder.layers.{layer}.dec_self_attn", f"decoder.layers.{layer}.pos_ffn"
        block = {}
        for x in "QKV":
            matrix = state.take(f"{attention}.W_{x}.weight", d_z, d_model)
            block[f"attn.W_{x}"] = rearrange(matrix, "(h d) m -> h m d", h=heads)
            bias = state.take(f"{attention}.W_{x}.bias", d_z)
            block[f"attn.b_{x}"] = rearrange(bias, "(h d) -> h d", h=heads)
        w_o = state.take(f"{attention}.fc.weight", d_model, d_z)
        block["attn.W_O"] = rearrange(w_o, "m (h d) -> h d m", h=heads)
        block["attn.b_O"] = state.take(f"{attention}.fc.bias", d_model)
        block["mlp.W_in"] = state.take(f"{mlp}.fc.0.weight", d_mlp, d_model).T
        block["mlp.b_in"] = state.take(f"{mlp}.fc.0.bias", d_mlp)
        block["mlp.W_out"] = state.take(f"{mlp}.fc.2.weight", d_model, d_mlp).T
        block["mlp.b_out"] = state.take(f"{mlp}.fc.2.bias", d_model)
        for norm, module in (("ln1", attention), ("ln2", mlp)):
            block[f"{norm}.w"] = state.take(f"{module}.layernorm.weight", d_model)
            block[f"{norm}.b"] = state.take(f"{module}.layernorm.bias", d_model)
        weights |= {f"blocks.{layer}.{name}": weight for name, weight in block.items()}
    state.finish()
    return weights


def _step(file: Path) -> int | None:
    match = re.fullmatch(r"model_(\d{1,18})\.pt", file.name)
    return int(match[1]) if match else None


def _is_plain(value: object) -> bool:
    """Check whether a value of the run's configuration can be stored in a checkpoint's metrics."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
