"""Which engine trains which run."""

from __future__ import annotations

from anchorlens.runs.run_config import RunConfig
from anchorlens.training.engine import Engine
from anchorlens.training.functional import FunctionalEngine
from anchorlens.training.stack import Stack


def engine_of(run: RunConfig) -> type[Engine]:
    """The engine of a run's task: the stack, or for a loss of its own the functional engine."""
    return FunctionalEngine if hasattr(run.task, "loss") else Stack
