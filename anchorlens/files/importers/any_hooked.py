"""State dicts of a HookedTransformer of any architecture, whatever it was trained on.

Its HookedTransformerConfig, `json.dump(model.cfg.to_dict(), file, default=str)`, says what the model is, and
may hold a table `task`. Verdicts need one of our architectures, which `hooked_transformer` reads; probes of
weights or tokens alone do not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.engine.evaluation_cost import MOST_LAYERS
from anchorlens.files.importers import hooked_transformer
from anchorlens.files.importers.settings import ModelConfiguration, Settings
from anchorlens.files.importers.source import state_dict
from anchorlens.models.hooked import model_of
from anchorlens.safe import read_tensors, reading, safe_repr
from anchorlens.tasks.shared.base import Task

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer


def open_any_hooked(
    path: str | os.PathLike[str], config: ModelConfiguration | None
) -> tuple[HookedTransformer, Task | None] | None:
    """Open a bare state dict with its HookedTransformerConfig; None where one of them is of another kind.

    Args:
        path: of the state dict, by itself or as `state_dict`, `model_state_dict` or `model` of a dict.
        config: a HookedTransformerConfig, or a JSON or TOML file with its fields; one that names a variant of
            ours is for `open_checkpoint`.

    Returns:
        The model on the CPU, in evaluation mode, and the task that the configuration gives, if any.

    Raises:
        CheckpointError: one of the files cannot be read, or they contradict each other.
    """
    if config is None or Path(path).is_dir():
        return None
    settings = Settings.of(config)
    if not {"d_model", "n_layers"} <= set(settings.values) or "variant" in settings.values:
        return None
    with reading(path):
        content = read_tensors(path).values
    if not hooked_transformer.recognises(content):
        return None
    task = settings.task()
    tensors = state_dict(content)
    values = {name: value for name, value in settings.values.items() if name not in ("task", "vocabulary")}
    with reading(settings.path, "it does not describe this model"):
        _check_sizes(values, tensors)
        return model_of(values, tensors), task


def _check_sizes(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that the weights do not have, before anything of such a size is built.

    Raises:
        ValueError: one contradicts the weights.
    """
    experts = {match[1] for name in tensors if (match := re.search(r"\.mlp\.experts\.(\d{1,9})\.", name))}
    layers = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d{1,9})\.", name))}
    for name, n_there in (("n_layers", len(layers)), ("num_experts", len(experts) or None)):
        if values.get(name) != n_there:
            raise ValueError(f"{name} is {safe_repr(values.get(name))} there, but the weights have {n_there}")
    check_number("n_layers", len(layers), maximum=MOST_LAYERS)
    check_number("d_head", values.get("d_head"), minimum=1, limit=1_000_000, integer=True)
    if values.get("rotary_dim") is not None:
        check_number("rotary_dim", values["rotary_dim"], minimum=0, maximum=values["d_head"], integer=True)
