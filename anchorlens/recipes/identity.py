"""The identity of a run: two runs are the same if all fields that decide their weights are the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.train_config import TrainConfig

EXECUTION = ("device", "threads", "n_checkpoints", "state_every_seconds", "log_every", "eval_every")
"""Fields of TrainConfig that say where a run is executed and what it records."""


def execution_fields(train: TrainConfig) -> frozenset[str]:
    """Return the names of the fields that do not affect what a run computes.

    The result contains the fields in `EXECUTION` and the path of the starting checkpoint. If a run may stop
    early, `eval_every` affects the last step and is not returned. If `stop_at_loss` is set, `log_every` is
    not returned either. The device and the number of threads are returned, because they change only the last
    digits of the results.
    """
    decisive = set() if train.early_stop_evaluations is None else {"eval_every"}
    if train.stop_at_loss is not None:
        decisive = {"log_every", "eval_every"}
    return (frozenset(EXECUTION) - decisive) | places(train)


def recipe(run: RunConfig) -> dict[str, Mapping[str, Any]]:
    """Return the fields that affect a run's weights, as JSON data grouped by task, model and train.

    The function omits unset fields, so that new fields in the package do not change the identity of old runs.
    """
    left_out = {"task": places(run.task), "train": execution_fields(run.train_config)}
    return {
        part: {
            name: value
            for name, value in fields.items()
            if value is not None and name not in left_out.get(part, ())
        }
        for part, fields in run.to_dict().items()
    }


def places(config: object) -> frozenset[str]:
    """Return the names of the fields of a task or recipe that hold paths and do not affect results."""
    fields: Mapping[str, dataclasses.Field[Any]] = getattr(config, "__dataclass_fields__", {})
    return frozenset(name for name, field in fields.items() if not field.compare)


def identity(run: RunConfig) -> str:
    """Return the SHA-256 of a run's recipe, as 64 hexadecimal digits.

    Equal recipes have the same SHA-256 on every machine, even if one recipe contains 1 and another recipe
    contains 1.0.
    """
    return _sha256(same_value(recipe(run)))


def same_value(value: object) -> str:
    """Return a text that is the same for equal values of a field, for example 1 and 1.0."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
