"""`LoadedModel`: a model on its way from a path, a checkpoint or memory to a measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import frozen_dataclass
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.models.running import device_of
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluator import check_capacity

if TYPE_CHECKING:
    import torch

    from anchorlens.models.library import HookedTransformer

PAPERS_TASK = "no task was named, so the papers' own task is assumed"


_MOST_NOTES = 5
"""The largest number of notes of a kind."""


def few_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and one note on how many more there are."""
    more = len(notes) - _MOST_NOTES
    others = [f"{more:,} more entries are left out for such reasons"] if more > 0 else []
    return [*notes[:_MOST_NOTES], *others]


class Trajectory(Mapping[int, Checkpoint]):
    """The checkpoints of a run in the order of their steps.

    Each checkpoint is made on demand.
    """

    steps_are_known = True
    """Whether the file gives the steps, and each has weights of its own."""

    def __init__(self, entries: Mapping[int, Callable[[], Checkpoint]] = MappingProxyType({})) -> None:
        """Store the function of each step that makes its checkpoint, or raises CheckpointError."""
        self._entries = dict(sorted(entries.items()))

    def __getitem__(self, step: int) -> Checkpoint:
        """Make the checkpoint at a step."""
        return self._entries[step]()

    def __iter__(self) -> Iterator[int]:
        """Iterate over the steps."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._entries)


@frozen_dataclass(eq=False)
class LoadedModel:
    """A model with its task and its source: a file, a `Checkpoint`, a result of `train`, or a module."""

    checkpoint: Any = None
    """The `Checkpoint` of the model, for every file format; None for a model without a checkpoint."""
    task: Task | None = None
    """The task that the model was trained on; None if it is not known."""
    notes: tuple[str, ...] = ()
    """The remarks for the user, one line each."""
    in_memory: Any = None
    """The model, if it is already built; else None."""
    path: Path = Path()
    """The path that was given: a file or a folder."""
    file: Path = Path()
    """The file that holds the weights."""
    sha256: str = ""
    """The SHA-256 of that file, 64 hexadecimal digits."""
    kind: str = ""
    """The recognised format of the file; empty for a model that was not read from a file."""
    trajectory: Trajectory = field(default_factory=Trajectory)
    """The checkpoints of an imported run with several, by step; `along` takes this mapping. Each
    checkpoint is read on demand, and a damaged checkpoint then raises CheckpointError."""
    log: tuple[Mapping[str, Any], ...] = ()
    """The losses and accuracies along an imported run, by `step`, if its folder has them."""
    why: str = ""
    """The reason why a model from a file is not a checkpoint."""
    device: torch.device | None = None
    """The device on which a checkpoint's model is built; None before `resolve` chooses the device."""
    name: str = "model"
    """The name to show."""
    facts: tuple[str, ...] = ()
    """The findings that need no warning, such as the operation for which the answers are right."""

    @property
    def named_task(self) -> Task | None:
        """The task that the caller or the file names, or None if the papers' task is only assumed."""
        return None if PAPERS_TASK in self.notes else self.task

    def assumed_task(self) -> Task:
        """Return the task, or the papers' own task for a model that can read it.

        Raises:
            ValueError: If the task is not known, and the model cannot read the papers' own task.
        """
        if self.task is not None:
            return self.task
        papers = task_or_default()
        try:
            check_capacity(self.model, papers)
        except ValueError:
            raise ValueError(
                f"the task of {self.name} must be given, got none. Give the task of the model (--config with "
                "a table [task]), or give classify its training data (--train-data)"
            ) from None
        return papers

    @cached_property
    def model(self) -> Any:
        """The HookedTransformer, or another network."""
        if self.checkpoint is None or self.in_memory is not None:
            return self.in_memory
        return self.checkpoint.build_model(self.device or "cpu")

    def initial_model(self) -> HookedTransformer:
        """Build the model at the start of its run.

        Raises:
            ValueError: If the start of the run is not known.
        """
        if self.checkpoint is None:
            raise ValueError(
                "the model must be a checkpoint to find the start of its run, got a model in memory. Give "
                "the initial model itself"
            )
        return self.checkpoint.initial_model(device_of(self.model))

    def __repr__(self) -> str:
        if not self.kind:
            return f"LoadedModel({self.name})"
        return f"LoadedModel({self.kind}: {self.checkpoint or self.why!r} from {self.file})"
