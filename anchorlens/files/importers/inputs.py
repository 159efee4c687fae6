"""`resolve` turns a model, a checkpoint, a result or a path into an `Input`: the model and its task."""

from __future__ import annotations

import copy
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import torch
from torch import nn

from anchorlens.configuration import article, as_path
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers.opened import ModelConfiguration, Opened, OpenedModel, open_model
from anchorlens.files.importers.source import PAPERS_TASK
from anchorlens.models.devices import choose_device
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.models.wrappers import hooked_within, hooks_in_words, is_hooked, unwrapped
from anchorlens.safe import CheckpointError
from anchorlens.tasks.registry import is_task, task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluator import logits_in
from anchorlens.texts import safe_repr, safe_text, titles

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

P = ParamSpec("P")
R = TypeVar("R")
_HALF = (torch.float16, torch.bfloat16)


class HasCheckpoint(Protocol):
    """An object with a checkpoint, such as the results of `train` and `open_checkpoint`."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint."""
        ...


@dataclass(frozen=True, eq=False)
class Input:
    """A model to measure, with its task and its origin."""

    task: Task | None
    """The task that the model was trained on; None if it is not known."""
    in_memory: Any = None
    """The model, if it is already built; else None."""
    checkpoint: Checkpoint | None = None
    """The checkpoint of the model; None for a model without a checkpoint."""
    opened: Opened | OpenedModel | None = None
    """The file that the model was read from; None for a model in memory."""
    device: torch.device | None = None
    """The device on which a checkpoint's model is built."""
    notes: tuple[str, ...] = ()
    """The remarks for the user, one line each."""
    name: str = "model"
    """The name to show."""

    @property
    def named_task(self) -> Task | None:
        """The task that the caller or the file names, or None if the papers' task is only assumed."""
        return None if PAPERS_TASK in self.notes else self.task

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


ModelInput: TypeAlias = "nn.Module | Checkpoint | HasCheckpoint | str | os.PathLike[str] | Input"
"""A model, or an object that holds a model: a HookedTransformer (or TransformerBridge), a Checkpoint, the
result of `train` or `open_checkpoint`, or the path of a file or folder that `open_checkpoint` reads."""


def resolve(
    given: ModelInput,
    task: Task | None = None,
    *,
    config: ModelConfiguration | None = None,
    device: str | torch.device = "auto",
    name: str | None = None,
    runs_it: bool = True,
    needs_hooks: bool = True,
) -> Input:
    """Find the model to measure in an object or at a path.

    Args:
        given: a model, or an object or path that holds a model.
        task: the task that the model was trained on. A checkpoint names its own task. A task that differs
            from the checkpoint's task only in the paths of its files (`data`) replaces the checkpoint's task.
            For bare weights, `task` applies if `config` does not name a task.
        config: the configuration of a bare state dict, as for `open_checkpoint`.
        device: the device of a checkpoint's model: auto, cpu, cuda, cuda:N or mps. A model in memory is not
            moved.
        name: the name to show. Default: the name of the file, the `repr` of a Checkpoint, or "model".
        runs_it: whether the model will be run. If true, a model in half precision is copied into float32. If
            true, a note also names hooks that the caller has left on the model.
        needs_hooks: whether the model must be a HookedTransformer if `given` is a module that holds a
            HookedTransformer.

    Raises:
        ValueError: If `given` does not hold one model, or `config` or `device` cannot be used.
        ValueError: If `task` is invalid, or is not the checkpoint's task.
        CheckpointError: If a file cannot be read safely and completely.
    """
    if isinstance(given, Input) and config is None:
        return given
    task, where = None if task is None else task_or_default(task), choose_device(device)
    opened = given if isinstance(given, Opened) else None
    if isinstance(given, str | os.PathLike):
        opened = open_model(as_path("path", given), config=config, task=task)
        if isinstance(opened, OpenedModel):
            if task is not None and opened.task not in (None, task):
                raise ValueError(
                    f"task must be the task of config or None, got {safe_repr(task)}. Omit task or the task "
                    "of config"
                )
            model = opened.model.to(str(where), print_details=False)
            called = name or safe_text(titles([given])[0])
            return Input(task or opened.task, model, None, opened, where, opened.notes, called)
    elif config is not None:
        raise ValueError(
            f"config must be given only for a file of bare weights, got {article(type(given).__name__)}. "
            "Omit config"
        )
    checkpoint = given if isinstance(given, Checkpoint) else getattr(opened or given, "checkpoint", None)
    if isinstance(checkpoint, Checkpoint):
        notes = () if opened is None else opened.notes
        if task is not None and task != checkpoint.task:
            raise ValueError(
                f"task must be the task of the checkpoint or None, got {safe_repr(task)}. Omit task, or give "
                "checkpoint.build_model() with your task"
            )
        checkpoint = checkpoint if task is None else replace(checkpoint, task=task)
        called = repr(checkpoint) if opened is None else safe_text(titles([opened.path])[0])
        return Input(checkpoint.task, None, checkpoint, opened, where, notes, name or called)
    if given is None or is_task(given) or isinstance(given, type | Mapping | list | tuple | set):
        raise ValueError(f"model must be {WHAT_HOLDS_A_MODEL}, got {type(given).__name__}{_advice(given)}")
    model, notes = unwrapped(given), ()
    if isinstance(model, nn.Module) and not is_hooked(model):
        model, notes = _hooked_within(model, needs_hooks)
    if runs_it and isinstance(model, nn.Module):
        left = hooks_in_words(model)
        model, cast = _in_single_precision(model)
        notes = (*notes, *cast, *([] if left is None else [left]))
    return Input(task, model, notes=notes, name=name or "model")


def given_training_data(given: object) -> Any:
    """Read training data if the value is a path; return any other value unchanged.

    Raises:
        CheckpointError: If `read_training_data` refuses the file.
    """
    if not isinstance(given, str | os.PathLike):
        return given
    from anchorlens.files.training_data import read_training_data  # late, since it imports pyarrow

    return read_training_data(given)


class _OfSeveral(Protocol[P, R]):
    """A function of one model that also takes a list of models."""

    @overload
    def __call__(self, model: ModelInput, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, model: Sequence[ModelInput], /, *args: P.args, **kwargs: P.kwargs) -> list[R]: ...
    def __call__(self, model: object, /, *args: object, **kwargs: object) -> Any:
        """Return the function's result for the model, or a list of results for several models."""
        ...


def of_several(function: Callable[Concatenate[Any, P], R]) -> _OfSeveral[P, R]:
    """Let a function of one model also take a list of models.

    For a list of models, the function also takes a list of names, and returns a list of results.
    """

    @functools.wraps(function)
    def each(model: object, *args: Any, **options: Any) -> Any:
        if not isinstance(model, list | tuple):
            return function(model, *args, **options)
        names = options.get("name")
        if not model:
            raise ValueError(
                f"{function.__name__} must get at least one model, got an empty list. Give a model"
            )
        if names is not None and (isinstance(names, str) or len(names) != len(model)):
            raise ValueError(
                f"`name` must be a list of {len(model)} names, one for each model, got {safe_repr(names)}. "
                "Give a list of names"
            )
        results = []
        for k, one in enumerate(model):
            named = {} if names is None else {"name": names[k]}
            try:
                results.append(function(one, *args, **{**options, **named}))
            except CheckpointError:  # which names its file
                raise
            except ValueError as error:
                raise ValueError(f"model {k + 1} of {len(model)}: {error}") from error
        return results

    return each  # pyright: ignore[reportReturnType]


WHAT_HOLDS_A_MODEL = (
    "a HookedTransformer, a Checkpoint, the result of train, or the path of a checkpoint or run"
)


def _advice(given: object) -> str:
    """Return a hint for known mistakes."""
    if is_task(given):
        return ". Give the model before the task"
    if isinstance(given, Mapping):
        return ". Load the state dict into its model: model.load_state_dict(...)"
    if isinstance(given, list | tuple | set):
        return (
            ". A probe takes one model. For several models, use compare([...], probe), classify or evaluate"
        )
    return ""


def _hooked_within(module: nn.Module, needs_hooks: bool) -> tuple[nn.Module, tuple[str, ...]]:
    """Find the one HookedTransformer in a module, with a note; else return the module.

    Raises:
        ValueError: If a HookedTransformer is needed and there are several, or the module's logits differ.
    """
    inside, what = hooked_within(module), type(module).__name__
    if not inside:
        return module, ()
    (path, model), *others = inside.items()
    alike = _answers_alike(module, model)
    if alike is not None and not needs_hooks and (others or not alike):
        return module, ()
    if others or alike is False:
        listed = " and ".join(f".{path}" for path in inside)
        why = "" if others else ", and gives other logits"
        raise ValueError(
            f"model must be a HookedTransformer, got {article(what)} that holds a HookedTransformer in "
            f"{listed}{why}. Give it: model.{path}"
        )
    return model, (f"the HookedTransformer in .{path} of the {what} that was given is measured",)


def _answers_alike(module: nn.Module, model: Any) -> bool | None:
    """Check whether a module gives the logits of a HookedTransformer within it; None without logits."""
    n_pos = min(model.cfg.n_ctx, 8)
    tokens = torch.arange(2 * n_pos, device=device_of(model)).reshape(2, n_pos) % model.cfg.d_vocab
    with evaluation_mode(module), torch.no_grad():
        expected = model(tokens)[:, -1]
        try:
            with warnings.catch_warnings(action="ignore"):
                found = logits_in(module(tokens), tokens, 1)[:, -1].to(expected)
        except Exception:  # a LightningModule's forward may take or give something else, or be missing
            return None
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-4)


def _in_single_precision(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the model, or a copy in float32 with a note if it is in half precision, on any device."""
    halves = {parameter.dtype for parameter in model.parameters() if parameter.dtype in _HALF}
    if not halves:
        return model, ()
    dtype = str(min(halves, key=str)).removeprefix("torch.")
    cast: Any = copy.deepcopy(model)
    if hasattr(cast, "cfg"):
        cast.cfg.dtype = torch.float32
    nn.Module.to(cast, torch.float32)
    return cast, (f"its weights are {dtype}: they are measured as float32, in a copy of the model",)
