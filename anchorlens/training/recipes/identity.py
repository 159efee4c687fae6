"""The identity of a run: two runs are the same if all fields that decide their weights are the same."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from anchorlens.training.recipes.run_config import RunConfig
from anchorlens.training.recipes.train_config import TrainConfig

EXECUTION = ("device", "threads", "n_checkpoints", "state_every_seconds", "log_every", "eval_every")
"""Fields of TrainConfig that say where a run is executed and what it records."""


def execution_fields(train: TrainConfig) -> frozenset[str]:
    """Return the fields that do not decide what a run computes.

    These are the fields of `EXECUTION` and the path of the start. If a run may stop early, `eval_every` (and
    for `stop_at_loss` also `log_every`) decides when, and is not returned. (The device and the number of
    threads change the last digits only, which does not count as another run.)
    """
    decisive = set() if train.early_stop_evaluations is None else {"eval_every"}
    if train.stop_at_loss is not None:
        decisive = {"log_every", "eval_every"}
    return (frozenset(EXECUTION) - decisive) | places(train)


def recipe(run: RunConfig) -> dict[str, Mapping[str, Any]]:
    """Return the fields that decide the weights by part (task, model, train), as JSON data.

    Unset fields are omitted, so that a field added to the package does not change the identity of old runs.
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
    """Return the fields of a task or recipe that are file paths and do not change what is computed."""
    fields: Mapping[str, dataclasses.Field[Any]] = getattr(config, "__dataclass_fields__", {})
    return frozenset(name for name, field in fields.items() if not field.compare)


def identity(run: RunConfig) -> str:
    """Return the SHA-256 of a run's recipe, 64 hexadecimal digits, the same on every machine.

    Equal recipes have one identity, whether a number is written 1 or 1.0.
    """
    return _sha256(same_value(recipe(run)))


def same_value(value: object) -> str:
    """Return a text that is the same for equal values of a field, whether a number is written 1 or 1.0."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
