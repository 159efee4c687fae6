"""TASKS, the tuple of every kind of task, and how a task is read from JSON or TOML data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorlens.configuration import suggestion
from anchorlens.foreign import shown
from anchorlens.tasks.addition import AdditionTask
from anchorlens.tasks.cogs.task import CogsTask
from anchorlens.tasks.concept_graphs.task import ConceptGraphsTask
from anchorlens.tasks.prontoqa.task import PrOntoQATask
from anchorlens.tasks.scan import ScanTask
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.text.task import TextTask
from anchorlens.tasks.two_anchor.task import AnchorTask

TASKS: tuple[type[Task], ...] = (
    AnchorTask,
    AdditionTask,
    ScanTask,
    CogsTask,
    PrOntoQATask,
    ConceptGraphsTask,
    TextTask,
)
"""Every kind of task; data that name no kind are of the first."""


def tasks() -> tuple[type[Task], ...]:
    """The kinds of task that there are now."""
    return TASKS


def task_class(kind: Any = None) -> type[Task]:
    """The class of a kind of task; the two-anchor task's for None.

    Raises:
        ValueError: there is no such kind.
    """
    kinds = {task.kind: task for task in TASKS}
    if kind is None:
        return TASKS[0]
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"there is no task {shown(kind)}; {suggestion(kind, list(kinds))}")
    return kinds[kind]


def read_task(values: Mapping[str, Any]) -> Task:
    """Read a task from JSON or TOML data; without `kind` it is the two-anchor task.

    Raises:
        ValueError: an unknown kind, a field that it does not have, or an unusable value.
    """
    owner, own = task_class(values.get("kind")), {n: v for n, v in values.items() if n != "kind"}
    for name in own:
        others = [task for task in TASKS if name in task_fields(task)]
        if others and owner not in others:
            kinds = " or ".join(task.kind for task in others)
            raise ValueError(
                f"{name} is a field of the task {kinds}, and this one is {owner.kind}; leave it out, or say "
                f"which task it is: kind = {others[0].kind!r} (--task {others[0].kind})"
            )
    return owner.from_dict(own)


def read_stored_task(values: Mapping[str, Any]) -> Task:
    """Read a task that a file says a model was trained on, which somebody else may have written.

    Raises:
        ValueError: as for `read_task`, or it leaves open what is settled when a task is made.
    """
    for name in getattr(task_class(values.get("kind")), "settled", ()):
        if not values.get(name):
            raise ValueError(f"a stored task {shown(values['kind'])} must say its {name}, and does not")
    return read_task(values)


def task_fields(task: type[Task]) -> Mapping[str, Any]:
    """Name -> field of a kind of task."""
    return task.__dataclass_fields__  # pyright: ignore[reportAttributeAccessIssue]


def logged_metrics() -> dict[str, Metric]:
    """Name in a log -> the metric of the first task that logs it."""
    found: dict[str, Metric] = {}
    for task in TASKS:
        for metric in task.metrics:
            if metric.logged_as:
                found.setdefault(metric.logged_as, metric)
    return found
