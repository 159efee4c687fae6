"""Which engine trains which run."""

from __future__ import annotations

from anchorlens.engine.base import Engine
from anchorlens.engine.own_loss import FunctionalEngine
from anchorlens.engine.stack import Stack
from anchorlens.recipes.run_config import RunConfig


def engine_of(run: RunConfig) -> type[Engine]:
    """Return `FunctionalEngine` for a task that defines a loss, and `Stack` for every other task."""
    return FunctionalEngine if run.task.loss is not None else Stack
