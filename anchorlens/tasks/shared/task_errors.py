"""The calls of a task, which turn any failure of a user's task into one error that names the task."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from anchorlens.configuration import exactly
from anchorlens.models.devices import is_out_of_memory
from anchorlens.plugins import is_own, line_in
from anchorlens.tasks.shared.base import LogitsModel, Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.texts import safe_repr, safe_text


def evaluated(task: Task, model: LogitsModel, **options: object) -> Evaluation:
    """Call `task.evaluate`, check that all measures are finite, and return the evaluation.

    Args:
        task: any task.
        model: the model to evaluate.
        **options: the options of the task's `evaluate`.

    Raises:
        ValueError: If the code of the task fails, ends the program, or returns a value of the wrong type.
    """
    with task_errors(task):
        found = task.evaluate(model, **options)
    if not isinstance(found, Evaluation):
        raise ValueError(
            f"evaluate of the task {task.kind} must return an Evaluation, got {safe_repr(found)}. Return an "
            "Evaluation"
        )
    measures = {name: one and _plain(task, name, one) for name, one in found.measures.items()}
    if is_own(task):
        found = replace(found, measures=measures)
        try:
            json.dumps(found.to_dict(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the evaluation of the task {task.kind} must be JSON-ready, got an error: "
                f"{safe_text(error)}. Use finite Python numbers."
            ) from error
    return found


def measured(task: Task, model: LogitsModel, training_set: object, *, seed: int) -> dict[str, float | None]:
    """Call `task.measure` for a line of the log, and return the metrics as finite Python numbers or None.

    Raises:
        ValueError: If the code of the task fails, ends the program, or returns a value of the wrong type.
    """
    with task_errors(task):
        found = task.measure(model, training_set, seed=seed)
    if not isinstance(found, Mapping):
        raise ValueError(
            f"measure of the task {task.kind} must return a mapping, got {safe_repr(found)}. Return a mapping"
        )
    return {name: None if value is None else _finite(task, name, value) for name, value in found.items()}


def _plain(task: Task, name: str, one: Accuracy) -> Accuracy:
    """Convert a measure to finite Python numbers."""
    value, error = (_finite(task, name, number) for number in (one.value, one.standard_error))
    return Accuracy(value, error, one.n_sequences)


def _finite(task: Task, name: str, value: object) -> float:
    number = exactly(value, float)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not math.isfinite(number):
        raise ValueError(
            f"the metric {safe_text(name)} of the task {task.kind} must be a finite number, got "
            f"{safe_repr(value)}. Give None if a metric is not defined."
        )
    return number


@contextlib.contextmanager
def task_errors(task: Task) -> Iterator[None]:
    """Turn any exception in the code of a user's task into an error that names the task.

    Out-of-memory errors, disk errors and all errors of a shipped task are passed on unchanged.

    Raises:
        ValueError: If the code of a user's task raised any other exception, or ended the program
            (`sys.exit`).
    """
    from anchorlens.models.alterations import settings_kept  # late, since it imports torch, which is slow

    try:
        with settings_kept() if is_own(task) else contextlib.nullcontext():
            yield
    except OSError:
        raise
    except (Exception, SystemExit) as error:
        if not is_own(task) or is_out_of_memory(error):
            raise
        file = getattr(sys.modules.get(type(task).__module__), "__file__", None) or ""
        place = line_in(error, file)
        said = f"{type(error).__name__}: {safe_text(error, 400)}".removesuffix(": ")
        if isinstance(error, SystemExit):
            said = f"sys.exit({safe_repr(error.code)}), which would end the program"
        raise ValueError(
            f"the task {task.kind} must run without an error, got {said}"
            + ("" if place is None else f" ({place})")
        ) from error
