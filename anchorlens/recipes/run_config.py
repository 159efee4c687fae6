"""RunConfig: everything that decides a run, which of its parts a field belongs to, and the identity of a run.

Two runs are the same if all fields that decide their weights are the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from anchorlens.configuration import check_choice, check_kind, field_types, suggestion
from anchorlens.recipes.interventions import with_base
from anchorlens.recipes.train_config import DURATIONS, SCHEDULED, TrainConfig
from anchorlens.tasks.registry import read_stored_task, read_task, tasks
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr

PARTS = ("task", "model", "train")
"""The parts of a run, by the names of their tables in JSON and TOML."""
Parts = Mapping[str, Mapping[str, Any]]
"""Part -> the fields that differ from the defaults."""


_ADVICE = ". Give task, model_config and train_config in this order, or unpack a run: train(*preset(name))"


def field_advice(name: str) -> str | None:
    """Return advice for a field that was passed to `train` as an argument, or None for other arguments."""
    owners = dict.fromkeys(cls.__name__ for _, cls in field_owners(name))
    if not owners:
        return None
    return f"This field belongs to {' and '.join(owners)}. Write preset({name}=...)"


def check_parts(task: Task, model_config: object, train_config: object) -> None:
    """Check that the parts of a run have the right types, and that no two parts share a field name.

    Raises:
        ValueError: If a part has the wrong type.
        ValueError: If a field of the task has the name of a field of another part.
    """
    kind = task.model_class
    check_kind("model_config", model_config, kind, f"{kind.__name__}()", _ADVICE)
    check_kind("train_config", train_config, TrainConfig, "TrainConfig()", _ADVICE)
    _check_names([type(task)], [task.model_class])


def _check_names(tasks: Iterable[type[Task]], models: Iterable[type]) -> None:
    """Refuse a task's field that has the name of a field of a model or of the training."""
    for other in (*models, TrainConfig):
        for task in tasks:
            if taken := field_types(task).keys() & field_types(other).keys():
                raise ValueError(
                    f"a field of a task must not have the name of a field of {other.__name__}, got "
                    f"{min(taken)} of {task.__name__}. Rename the field."
                )


class RunConfig(NamedTuple):
    """The configuration of a run: its task, model and training recipe.

    The configuration unpacks into the arguments of `train`: `train(*preset("phase3"), out="runs/phase3")`.
    """

    task: Any
    """The task, a `Task`."""
    model_config: Any
    """Shape and initialisation of the model: a `ModelConfig`, or another `model_class` of the task."""
    train_config: TrainConfig
    """Data, optimiser and schedule."""

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON data."""
        return {part: config.to_dict() for part, config in zip(PARTS, self, strict=True)}

    @classmethod
    def from_dict(cls, values: Parts, task: Task | None = None, *, is_new: bool = False) -> RunConfig:
        """Read a run from JSON or TOML data, with defaults for missing fields.

        If the vocabulary size or the context length is missing, the function fits the missing value to the
        task.

        Args:
            values: a map from each part of the run to its fields.
            task: the task, if the part `task` has been read before.
            is_new: whether the user makes a new run from these fields. The function opens and hashes the
                files of a new run only, because somebody else may have written a stored run.

        Raises:
            ValueError: If a part or field is unknown, or a value is invalid.
            ValueError: If a stored run has a file without its hash.
        """
        for part in values:
            check_choice("a part of the configuration", part, PARTS)
            if not isinstance(values[part], Mapping):
                raise ValueError(f"{part} must be a table of fields, got {safe_repr(values[part])}")
        if task is None:
            task = (read_task if is_new else read_stored_task)(values.get("task", {}))
        train = values.get("train", {})
        return cls(
            task,
            task.model_class.for_task(task, **values.get("model", {})),
            TrainConfig(**train) if is_new else TrainConfig.from_dict(train),
        )

    @property
    def overview(self) -> str:
        """The model, gamma, seed and steps in one line.

        >>> from anchorlens import preset
        >>> preset("phase3").overview
        'gpt2, 2 layers, 1 head, d_model 128 · gamma 0.7, seed 0 · 1,000 steps'
        """
        model, train = self.model_config, self.train_config
        gamma = "" if model.gamma is None else f"gamma {model.gamma:g}, "
        return f"{model.overview} · {gamma}seed {train.seed} · {train.total_steps:,} steps"


_SAME_DURATION = {one: other for pair in DURATIONS for one, other in (pair, pair[::-1])}


def sorted_by_part(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Group fields, and the task's `kind`, by the part of the run that they belong to.

    Raises:
        ValueError: If no part has a field of this name.
    """
    parts: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        owners = field_owners(name)
        if not owners and name != "kind":
            names = [field for _, cls in part_classes() for field in field_types(cls)]
            raise ValueError(
                f"every field must belong to a configuration, got {safe_repr(name)}. "
                f"{suggestion(name, names)}"
            )
        part = owners[0][0] if owners else "task"
        parts.setdefault(part, {})[name] = value
    return parts


def merged(base: Parts, changes: Parts) -> dict[str, dict[str, Any]]:
    """Return the parts of a run from `base`, with the fields in `changes` replaced.

    A duration in steps replaces a duration in epochs, and vice versa. A schedule without a base value takes
    the base value from `base`.
    """
    for part, fields in (*base.items(), *changes.items()):
        if not isinstance(fields, Mapping):
            raise ValueError(f"{part} must be a table of fields, got {safe_repr(fields)}")
    result = {part: dict(fields) for part, fields in base.items()}
    for part, fields in changes.items():
        target = result.setdefault(part, {})
        kept = {name: with_base(fields[name], target.get(name)) for name in SCHEDULED if name in fields}
        for name in fields:
            target.pop(_SAME_DURATION.get(name, name), None)
        target.update({**fields, **kept})
    return result


def part_classes(kinds: Sequence[type[Task]] | None = None) -> list[tuple[str, type]]:
    """Return all configuration classes of tasks, models and training, each with the name of its part.

    Args:
        kinds: the kinds of task. Default: all registered kinds.

    Raises:
        ValueError: If a field of a task has the name of a field of a model or of the training.
    """
    kinds = tasks() if kinds is None else kinds
    models = dict.fromkeys(task.model_class for task in kinds)
    _check_names(kinds, models)
    return [
        *(("task", task) for task in kinds),
        *(("model", model) for model in models),
        ("train", TrainConfig),
    ]


def field_owners(name: str) -> list[tuple[str, type]]:
    """Return the pairs of `part_classes` whose class has a field of this name."""
    return [(part, cls) for part, cls in part_classes() if name in field_types(cls)]


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
    return hashlib.sha256(same_value(recipe(run)).encode()).hexdigest()


def same_value(value: object) -> str:
    """Return a text that is the same for equal values of a field, for example 1 and 1.0."""
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
