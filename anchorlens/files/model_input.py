"""`resolve` turns a model, a checkpoint, a result or a path into a `LoadedModel`: the model and its task."""

from __future__ import annotations

import copy
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import torch
from torch import nn

from anchorlens.configuration import article, as_path
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_model
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.files.settings import ModelConfiguration
from anchorlens.models.devices import choose_device
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.models.wrappers import hooked_within, hooks_in_words, is_hooked, unwrapped
from anchorlens.safe import CheckpointError
from anchorlens.tasks.registry import is_task, task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluator import logits_in
from anchorlens.texts import safe_repr, safe_text, titles

P = ParamSpec("P")
R = TypeVar("R")
_HALF = (torch.float16, torch.bfloat16)


class HasCheckpoint(Protocol):
    """An object with a checkpoint, such as the results of `train` and `open_checkpoint`."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint."""
        ...


ModelInput: TypeAlias = "nn.Module | Checkpoint | HasCheckpoint | str | os.PathLike[str]"
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
) -> LoadedModel:
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
    if isinstance(given, LoadedModel) and config is None and (given.device or given.in_memory) is not None:
        return given
    task, where = None if task is None else task_or_default(task), choose_device(device)
    if isinstance(given, str | os.PathLike):
        found = open_model(as_path("path", given), config=config, task=task)
    elif config is not None:
        raise ValueError(
            f"config must be given only for a file of bare weights, got {article(type(given).__name__)}. "
            "Omit config"
        )
    elif isinstance(given, LoadedModel):
        found = given
    else:
        checkpoint = given if isinstance(given, Checkpoint) else getattr(given, "checkpoint", None)
        if not isinstance(checkpoint, Checkpoint):
            return _in_memory(given, task, name, runs_it, needs_hooks)
        found = LoadedModel(checkpoint, checkpoint.task, name=repr(checkpoint))
    if task is not None and found.task not in (None, task):
        whose, other = "the checkpoint", ", or give checkpoint.build_model() with your task"
        if found.checkpoint is None:
            whose, other = "config", " or the task of config"
        raise ValueError(f"task must be the task of {whose} or None, got {safe_repr(task)}. Omit task{other}")
    called = name or (safe_text(titles([found.path])[0]) if found.kind else found.name)
    found = replace(found, task=task or found.task, device=where, name=called)
    if found.checkpoint is None:
        return replace(found, in_memory=found.in_memory.to(str(where), print_details=False))
    return found if task is None else replace(found, checkpoint=replace(found.checkpoint, task=task))


def _in_memory(
    given: object, task: Task | None, name: str | None, runs_it: bool, needs_hooks: bool
) -> LoadedModel:
    if given is None or is_task(given) or isinstance(given, type | Mapping | list | tuple | set):
        raise ValueError(f"model must be {WHAT_HOLDS_A_MODEL}, got {type(given).__name__}{_advice(given)}")
    model, notes = unwrapped(given), ()
    if isinstance(model, nn.Module) and not is_hooked(model):
        model, notes = _hooked_within(model, needs_hooks)
    if runs_it and isinstance(model, nn.Module):
        left = hooks_in_words(model)
        model, cast = _in_single_precision(model)
        notes = (*notes, *cast, *([] if left is None else [left]))
    return LoadedModel(task=task, notes=notes, in_memory=model, name=name or "model")


def given_training_data(given: object) -> Any:
    """Read training data if the value is a path; return any other value unchanged.

    Raises:
        CheckpointError: If `read_training_data` refuses the file.
    """
    if not isinstance(given, str | os.PathLike):
        return given
    from anchorlens.files.training_data import read_training_data  # late: few commands read data

    return read_training_data(given, floats=True)


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


HINT = (
    ". A probe of heads or MLPs needs a HookedTransformer. Use hooked_from(gpt) for a GPT-2, "
    "hooked_from(module, names={...}) for another transformer, and classify(model, training_set=(x, y)) for "
    "any module"
)
"""The hint for a plain GPT where a HookedTransformer is needed."""
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
