"""Which engine trains which run."""

from __future__ import annotations

from anchorlens.engine.base import Engine
from anchorlens.engine.own_loss import FunctionalEngine
from anchorlens.engine.stack import Stack
from anchorlens.runs.run_config import RunConfig


def engine_of(run: RunConfig) -> type[Engine]:
    """The engine of a run's task: the stack, or for a loss of its own the functional engine."""
    return FunctionalEngine if run.task.loss is not None else Stack
