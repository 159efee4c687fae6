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

from anchorlens.configuration import check_choice, check_number
from anchorlens.extras.importers.checkpoints import config_beside, imported, not_used, taken
from anchorlens.extras.importers.name_map import of_modules, weights_of
from anchorlens.extras.importers.released_task import trained
from anchorlens.files import LoadedModel, Settings, Source, state_dict
from anchorlens.models import PARTS, SIZES, ModelConfig, parameter_shapes
from anchorlens.safe import CheckpointError, reading
from anchorlens.texts import safe_repr

_MODELS = ("GPT2_init_for_diff_part_prenorm",)
_GAMMAS = {f"gamma_{part}": f"{part}_std" for part in PARTS}
_THEIR_SIZES = ("n_layers", "n_heads", "d_model", "d_k", "d_feedforward", "vocab_size", "max_pos")
_SHAPES = dict(zip(SIZES, _THEIR_SIZES, strict=True))
_ATTENTION, _MLP = "decoder.layers.{l}.dec_self_attn", "decoder.layers.{l}.pos_ffn"
_MODULES = {
    "unembed.W_U": "projection",
    "ln_final.w": "layernorm",
    **{f"blocks.{{l}}.attn.W_{x}": f"{_ATTENTION}.W_{x}" for x in "QKV"},
    "blocks.{l}.attn.W_O": f"{_ATTENTION}.fc",
    "blocks.{l}.mlp.W_in": f"{_MLP}.fc.0",
    "blocks.{l}.mlp.W_out": f"{_MLP}.fc.2",
    "blocks.{l}.ln1.w": f"{_ATTENTION}.layernorm",
    "blocks.{l}.ln2.w": f"{_MLP}.layernorm",
}
"""The matrices of a HookedTransformer, and the modules of the released code."""
_NAMES = {
    "embed.W_E": "embedding.tgt_emb.weight",
    "pos_embed.W_pos": "embedding.pos_emb.weight",
    **of_modules(_MODULES, transpose=True),
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
    left = theirs.values.keys() - (used - {"data_size"})
    recipe = {name: value for name, value in theirs.values.items() if name in left and _is_plain(value)}
    notes += not_used(theirs, used)
    found = weights_of(source.tensors, _NAMES, config.n_heads)
    weights = taken(found, parameter_shapes(config))
    about = {"step": step, "metrics": {"recipe": recipe}, "overlap": run.overlap}
    return imported("released code", config, run.task, weights, notes=notes, **about)


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


def _step(file: Path) -> int | None:
    match = re.fullmatch(r"model_(\d{1,18})\.pt", file.name)
    return int(match[1]) if match else None


def _is_plain(value: object) -> bool:
    """Check whether a value of the run's configuration can be stored in a checkpoint's metrics."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
