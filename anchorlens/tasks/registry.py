"""The registry of tasks (shipped, installed or registered), and the reader of tasks in JSON or TOML data."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from anchorlens.configuration import check_kind, field_types, suggestion
from anchorlens.plugins import defined_in, installed, what_to_install
from anchorlens.tasks.shared.base import Task, TaskConfig
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import Metric
from anchorlens.tasks.shared.training_data_task import TrainingDataTask
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr, safe_text

TASKS: tuple[type[Task], ...] = (AnchorTask,)
"""The kinds of task of the core. Data without a kind are read as the first. Entry points add other kinds."""

LOGGED = frozenset({"step", "loss", "lr", "grad_norm", "weight_norm", "seconds"})
"""The columns that every line of a log has in addition to the metrics of a task."""
WHAT_A_TASK_IS = (
    "a frozen dataclass on anchorlens.tasks.TaskConfig with kind, metrics, d_vocab, seq_len, training_set "
    "and evaluate"
)
_NEEDED = ("kind", "metrics", "d_vocab", "seq_len", "training_set", "evaluate")

_registered: dict[str, type[Task]] = {}
"""The registered class of each kind of task."""
_files: dict[type, str] = {}
"""The file of each registered task whose file cannot be imported as a module."""

T = TypeVar("T", bound=type)


def tasks() -> tuple[type[Task], ...]:
    """Return the classes of all shipped, installed and registered tasks, one for each kind.

    What an installed package offers and cannot be used is left out with a warning.
    """
    others = {task.kind: task for task in _installed()} | _registered
    return (*TASKS, *others.values())


def register_task(task: T) -> T:
    """Register the class of your own task under its kind.

    Runs, checkpoints and sweeps of the task can then be read from disk. The fields of the task become options
    of `train` and axes of `sweep`. The processes of a sweep register the task too. A class replaces a
    registered class that has the same kind, module and name.

    Args:
        task: a frozen dataclass that inherits from `anchorlens.tasks.TaskConfig`.

    Returns:
        The class `task` itself, so that you can use the function as a decorator.

    Raises:
        ValueError: If the class is not a task, or another task has the same kind. Training raises an error if
            a field shares its name with a field of the model or the training, or with a command's option.

    Example:
        >>> register_task(dict)
        Traceback (most recent call last):
        ValueError: a task must be a frozen dataclass on anchorlens.tasks.TaskConfig with ..., got dict...
    """
    _check(task)
    _check_kind_is_free(task, tasks())
    _registered[task.kind] = task
    copyreg.pickle(task, _packed)  # pyright: ignore[reportArgumentType]
    return task


def own_tasks(path: str | os.PathLike[str]) -> tuple[type[Task], ...]:
    """Run a Python file, and register the tasks that the file defines.

    The file is run as a program, so give only a file that you would run. Checkpoints are data. anchorlens
    never runs a checkpoint, and a checkpoint never names the file of its task.

    Args:
        path: the path of the file, .py. Each call runs the file again.

    Returns:
        The classes of the tasks, in the order of the file.

    Raises:
        ValueError: If the file is missing, has a suffix other than `.py`, or raises an error. The message
            gives the line of the error.
        ValueError: If the file defines no task, or a task that cannot be registered.

    Example:
        >>> own_tasks("largest.py")  # doctest: +SKIP
        (<class 'own_tasks_1b0b2c3d_largest.LargestOfTwo'>,)
    """
    defined = defined_in(path, "task", WHAT_A_TASK_IS, _is_own_task)
    for task in defined:
        try:
            register_task(task)
        except ValueError as error:
            raise ValueError(f"{safe_text(path)}: {error}") from None
        _files[task] = str(Path(path).resolve())
    return tuple(defined)


def task_class(kind: object = None) -> type[Task]:
    """Return the class of a task by its kind, or the class of the two-anchor task if `kind` is None.

    Raises:
        ValueError: If the kind is unknown.
    """
    if kind is None:
        return TASKS[0]
    for known in (*TASKS, *_registered.values()):  # without reading installed packages
        if kind == known.kind:
            return known
    if isinstance(kind, str):  # no other package is loaded for one of this name
        for task, _ in installed("anchorlens.tasks", "task", kind, check=_check, must=True):
            if task.kind == kind:
                return task
    kinds = {task.kind: task for task in tasks()}
    if not isinstance(kind, str) or kind not in kinds:
        if advice := what_to_install("anchorlens.tasks", kind):
            raise ValueError(f"the task {advice}")
        raise ValueError(
            f"task must be a known task, got {safe_repr(kind)}. {suggestion(kind, list(kinds))} For your own "
            "task, give its file (--tasks FILE; register_task in Python), or install its package."
        )
    return kinds[kind]


def is_task(value: object) -> bool:
    """Return whether a value is a task of any class."""
    return isinstance(value, Task)


_ORDER = ". Give the model before its task, the task before configurations, and a run as train(*preset(name))"


def task_or_default(task: Task | None = None) -> Task:
    """Return the given task, or the two-anchor task with the papers' values if `task` is None.

    Raises:
        ValueError: If the value is not a task.
    """
    if task is None:
        return TASKS[0]()
    check_kind("task", task, Task, "AnchorTask()", _ORDER)
    return task


def read_task(values: Mapping[str, Any]) -> Task:
    """Read a task from JSON or TOML data; data without `kind` describe the two-anchor task.

    Raises:
        ValueError: If the kind or a field is unknown, or a value is invalid.
    """
    owner, own = task_class(values.get("kind")), {n: v for n, v in values.items() if n != "kind"}
    for name in own:
        if name in task_fields(owner):
            continue
        if others := [task for task in tasks() if name in task_fields(task)]:
            kinds = " or ".join(task.kind for task in others)
            raise ValueError(
                f"every field must belong to the task {owner.kind}, got {name} of the task {kinds}. Remove "
                f"the field, or set the task: kind = {others[0].kind!r} (--task {others[0].kind})."
            )
    return owner.from_dict(own)


def read_stored_task(values: Mapping[str, Any], *, without_places: bool = False) -> Task:
    """Read a stored task from its fields, without opening the files that the task names.

    The fields may come from an untrusted file.

    Args:
        values: the fields of the stored task.
        without_places: whether to omit the paths of the task's files, so that no later call opens these
            files. The user then gives the paths.

    Raises:
        ValueError: If a field in `stored_fields` is missing, or `read_task` rejects the fields.
    """
    owner = task_class(values.get("kind"))
    for name in owner.stored_fields:
        if not values.get(name):
            raise ValueError(
                f"a stored task {safe_repr(owner.kind)} must have the field {name}, got none. Add the field, "
                "or save the task again"
            )
    places = [name for name, field in task_fields(owner).items() if not field.compare and without_places]
    return read_task({name: value for name, value in values.items() if name not in places})


def read_evaluation(values: Mapping[str, Any]) -> Evaluation:
    """Read an evaluation of any task from the fields that `Evaluation.to_dict` returns.

    Raises:
        ValueError: If the kind of task is unknown, or a value is missing or has the wrong type.
    """
    kind = values["kind"] if isinstance(values, Mapping) and "kind" in values else ""
    task = TrainingDataTask if kind == TrainingDataTask.kind else task_class(kind)
    read = task.evaluation_class.from_dict(values)
    return dataclasses.replace(read, metrics=tuple(m for m in task.metrics if m.name in read.measures))


def task_fields(task: type[Task]) -> Mapping[str, Any]:
    """Return a map from the names of a task's fields to the dataclass fields."""
    return {field.name: field for field in dataclasses.fields(task)}  # pyright: ignore[reportArgumentType]


def logged_metrics() -> dict[str, Metric]:
    """Return a map from each metric's name in a log to the metric.

    If several tasks log the same name, the map contains the metric of the first task.
    """
    logged: dict[str, Metric] = {}
    for metric in (metric for task in tasks() for metric in task.metrics if metric.logged_as):
        logged.setdefault(metric.logged_as, metric)
    return logged


@functools.cache
def _installed() -> tuple[type[Task], ...]:
    """Return the tasks of all installed packages, including this package."""
    found: list[type[Task]] = []

    def check(task: type[Task]) -> None:
        _check(task)
        _check_kind_is_free(task, (*TASKS, *found))

    for task, _ in installed("anchorlens.tasks", "task", check=check):
        found.append(task)
    return tuple(found)


def _check_kind_is_free(task: type[Task], others: Iterable[type[Task]]) -> None:
    for other in others:
        if other.kind == task.kind and _name(other) != _name(task):
            raise ValueError(
                f"the kind of {_name(task)} must be new, got {task.kind}, which is already the kind of "
                f"{_name(other)}. Give your task another kind."
            )


def _check(task: object) -> None:
    """Check that a class is a task, and that no log column already has the name of one of its metrics.

    Raises:
        ValueError: If the class is not a task, or a name is taken.
    """
    if problem := next(_problems(task), None):
        raise ValueError(f"a task must be {WHAT_A_TASK_IS}, got {problem}. Correct the class")


def _problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with a class that should be a task."""
    is_task = isinstance(task, type) and issubclass(task, TaskConfig) and dataclasses.is_dataclass(task)
    if not is_task or not task.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
        yield task.__name__ if isinstance(task, type) else safe_repr(task)
    name = task.__name__
    for one in _NEEDED:
        if getattr(task, one, None) is getattr(TaskConfig, one, None):
            yield f"{name} without {one}"
    if not isinstance(task.kind, str) or not re.fullmatch("[a-z][a-z0-9_]{0,59}", task.kind):
        yield f"the kind {safe_repr(task.kind)}, which must be lower-case letters, digits and _"
    try:
        field_types(task)
    except NameError as error:
        yield f"{name} with fields of unknown types ({error})"
    for field in task_fields(task).values():
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            yield f"{name} without a default of its field {field.name}"
    metrics = task.metrics
    if not (isinstance(metrics, tuple) and metrics and all(isinstance(one, Metric) for one in metrics)):
        yield f"the metrics {safe_repr(metrics)}, which must be a tuple of Metric"
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        yield f"metrics of the same name ({', '.join(names)})"
    if taken := LOGGED & {metric.logged_as for metric in metrics}:
        yield f"a metric that is logged as {min(taken)}, which is a column of every log"


def _is_own_task(value: Any, module: ModuleType) -> bool:
    is_task = isinstance(value, type) and issubclass(value, TaskConfig) and hasattr(value, "kind")
    return is_task and value.__module__ == module.__name__ and not value.__name__.startswith("_")


def _name(task: type) -> str:
    return f"{task.__module__}.{task.__qualname__}"


def _packed(task: Any) -> tuple[Any, ...]:
    """Pickle a registered task with its class or file, so that another process can register it."""
    cls = type(task)
    return _unpacked, (_files.get(cls, cls), cls.kind), object.__reduce_ex__(task, 2)[2]


def _unpacked(source: Any, kind: str) -> Any:
    """Register the class, and make a task without fields; pickle then sets the fields."""
    if isinstance(source, str):
        if kind not in _registered or _files.get(_registered[kind]) != source:
            own_tasks(source)
        source = _registered[kind]
    cls = register_task(source)
    return cls.__new__(cls)
