"""The input and output types of importers, and their shared functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from anchorlens.files.checkpoint import Checkpoint, check_whole
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.vocabulary import in_order_of
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import is_frozen
from anchorlens.models.hooked import model_with
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluator import check_memory
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr, safe_text

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

_MOST_NAMED = 1000
"""The largest number of characters of the fields in a note."""
PAPERS_TASK = "no task was named, so the papers' own task is assumed"


@dataclass(frozen=True)
class Source:
    """A weights file with its configuration and task."""

    path: Path
    """The path that was given: the file, or the folder that holds it."""
    file: Path
    """The weights file, which errors name."""
    content: Mapping[str, Any]
    """The content of the file from the safe reader: names, plain values and tensors."""
    config: Settings | None
    """The configuration that the caller gave, or None."""
    task: Task | None = None
    """The task that the caller gave, used if neither the file nor the configuration names one."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The state dict of the file, or an empty dict."""
        return state_dict(self.content)


class Trajectory(Mapping[int, Checkpoint]):
    """The checkpoints of a run in the order of their steps.

    Each checkpoint is made on demand.
    """

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


class Imported(NamedTuple):
    """The result of an importer."""

    checkpoint: Checkpoint
    """The weights, model and task, checked against each other."""
    notes: tuple[str, ...]
    """The remarks for the user, one line each."""
    trajectory: Trajectory = Trajectory()
    """The checkpoints along the run, if the file or folder holds some; the last may be `checkpoint`."""
    log: tuple[Mapping[str, Any], ...] = ()
    """The lines of the run's log: `step`, `loss`, and metrics under the task's names."""


class ImportedModel(NamedTuple):
    """A HookedTransformer without a checkpoint, because no `ModelConfig` fits or the task is not known."""

    model: HookedTransformer
    """The model on the CPU, in evaluation mode."""
    task: Task | None
    """The task that the model was trained on, if the file or the caller names it."""
    notes: tuple[str, ...]
    """The remarks for the user, one line each."""
    why: str
    """The reason why the model is not a checkpoint, in words."""


def state_dict(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the named tensors of a file's content, or the named tensors under the key `state_dict`.

    The result is empty if neither table contains only named tensors. `wrappers.unwrapped` has moved tensors
    from other keys to `state_dict`.
    """
    for candidate in (content, content.get("state_dict")):
        if (
            isinstance(candidate, dict)
            and candidate
            and all(isinstance(n, str) and isinstance(t, Tensor) for n, t in candidate.items())
        ):
            return candidate
    return {}


class StateDict:
    """An imported state dict, from which every tensor must be taken by name."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._left = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> Tensor:
        """Take one tensor of the given shape.

        Raises:
            ValueError: If the tensor is missing, has another shape, or does not hold floats.
        """
        if name not in self._left:
            raise ValueError(f"{name} is missing")
        tensor = self._left.pop(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}. Correct it")
        if not tensor.dtype.is_floating_point:
            raise ValueError(
                f"{name} must hold floating point numbers, got {tensor.dtype}. Save the tensor as floats"
            )
        return tensor

    def finish(self, buffers: tuple[str, ...] = ()) -> None:
        """Check that the remaining tensors are buffers, recognised by the ends of their names.

        Raises:
            ValueError: If a remaining tensor is not a buffer.
        """
        for name in self._left:
            if not name.endswith(buffers):
                raise ValueError(
                    "every weight must be a parameter of an architecture that anchorlens can read, got "
                    f"{safe_repr(name)}. Save the state dict of a supported model"
                )


def not_used(config: Settings, used: Iterable[str]) -> list[str]:
    """Return a list with a note on the configuration fields that have a value but are not used.

    The list is empty if all fields with a value are used.
    """
    left = sorted({name for name, value in config.values.items() if value is not None} - set(used))
    return [f"{config.path}: not used: {safe_text(', '.join(left), _MOST_NAMED)}"] if left else []


def in_one_precision(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert the weights to float64 if a weight is float64, else to float32, and note any conversion."""
    dtypes = {weight.dtype for weight in weights.values()}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    names = ", ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
    note = f"its weights are {names}: they are read as {str(dtype).removeprefix('torch.')}"
    cast = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
    return cast, [note] if dtypes - {dtype} else []


def papers_task(d_vocab: int, n_ctx: int) -> tuple[AnchorTask | None, list[str]]:
    """Return the papers' task with a note, or None for a model that cannot read this task."""
    task = AnchorTask()
    return (task, [PAPERS_TASK]) if task.d_vocab <= d_vocab and task.seq_len <= n_ctx else (None, [])


def imported(
    config: ModelConfig,
    task: Task | None,
    weights: Mapping[str, Tensor],
    *,
    vocabulary: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
    **fields: Any,
) -> Imported | ImportedModel:
    """Make a checkpoint of imported weights, in float32 or float64, with notes for the user.

    Without a task, anchorlens assumes the papers' task if the model can read this task, and otherwise returns
    only the model. A vocabulary maps words of the task to tokens of the model. With a vocabulary, the
    function renumbers the model's tokens.

    Raises:
        ValueError: If the weights do not fit the configuration, or the model is too small for the task.
    """
    given = list(weights.values())
    weights, cast = in_one_precision(weights)
    notes = (*notes, *cast)
    for name, weight in weights.items():
        if is_frozen(config, name) and weight.count_nonzero():
            raise ValueError(
                f"{name} must be zero for the variant {config.variant}, which lacks this bias, got other "
                "values. Use another variant"
            )
    if task is None:
        task, noted = papers_task(min(config.d_vocab, config.n_answers), config.n_ctx)
        if task is None and vocabulary is None:
            check_memory(config, AnchorTask(), 0, given)
            return ImportedModel(model_with(config, weights).eval(), None, notes, "it has no task")
        task, notes = task or AnchorTask(), (*notes, *noted)
    if vocabulary is not None:
        weights, spelled = in_order_of(task, weights, vocabulary)
        notes = (*notes, *spelled)
        config = dataclasses.replace(config, d_vocab=len(weights["embed.W_E"]))
    checkpoint = Checkpoint(config, task, weights, **fields)
    check_whole(checkpoint)
    train = checkpoint.train_config
    check_memory(config, task, train.n_samples if train else 0, given)
    return Imported(checkpoint, notes)
