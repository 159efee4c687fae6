"""When two runs are the same: when their recipes are, wherever they are trained and whatever they record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from anchorlens.runs.run_config import RunConfig
from anchorlens.runs.train_config import TrainConfig

EXECUTION = ("device", "threads", "n_checkpoints", "state_every_seconds", "log_every", "eval_every")
"""Fields of TrainConfig that say where a run is carried out and what it records."""


def execution_fields(train: TrainConfig) -> frozenset[str]:
    """Those fields of `EXECUTION` that do not decide what a run computes, and where its start lies.

    How often it is logged and evaluated does where the run may end early by what is found then. (Another
    device or number of threads moves the last digits, which makes no other run.)
    """
    decisive = set() if train.early_stop_evaluations is None else {"eval_every"}
    if train.stop_at_loss is not None:
        decisive = {"log_every", "eval_every"}
    return (frozenset(EXECUTION) - decisive) | places(train)


def recipe(run: RunConfig) -> dict[str, Mapping[str, Any]]:
    """Part (task, model, train) -> the fields that decide the weights, JSON-ready.

    Fields that are unset are not in it, so that a new one makes no other run of an old one.
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


def places(config: Any) -> frozenset[str]:
    """Fields of a task or recipe that say where its files lie, which decides nothing that is computed."""
    fields: Mapping[str, dataclasses.Field[Any]] = getattr(config, "__dataclass_fields__", {})
    return frozenset(name for name, field in fields.items() if not field.compare)


def identity(run: RunConfig) -> str:
    """The SHA-256 of a run's recipe, 64 hexadecimal digits: what makes it that run, on any machine.

    Equal recipes have one identity, whether a number was written 1 or 1.0.
    """
    return _sha256(same_value(recipe(run)))


def same_value(value: Any) -> str:
    """A text that equal values of a field share, whether a number was written 1 or 1.0."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
