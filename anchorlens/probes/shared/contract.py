"""The contract of a probe: its decorator, how it is called with any model, and the result that it returns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anchorlens.configuration import check_names, frozen_dataclass
from anchorlens.files.loaded_model import PAPERS_TASK, LoadedModel
from anchorlens.files.model_input import ModelInput, resolve
from anchorlens.models.alterations import assert_unmodified, copied
from anchorlens.models.running import lock_of
from anchorlens.plugins import is_own, not_ending
from anchorlens.texts import safe_repr, safe_text
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.files.settings import ModelConfiguration
    from anchorlens.tasks.shared.base import Task

T = TypeVar("T")

_MOST_IN_HEADLINE = 5

SCHEMA_VERSION = 1
"""The version of the format of `to_dict`. The version increases by one when a key changes its meaning or is
removed."""


@dataclass(frozen=True)
class ProbeSpec:
    """What a probe needs, and which models and tasks it measures."""

    function: Callable[..., Any]
    """The function of a model in memory."""
    costly: bool = False
    """Whether the probe trains models, which takes about half a minute."""
    of_mixtures: bool = False
    """Whether the probe measures mixtures of experts only."""
    on_tokens: bool = False
    """Whether the probe accepts tokens for any HookedTransformer, and needs a task only without tokens."""
    task_kind: str | None = None
    """The kind of the only task that the probe measures, such as `modular`. `None` stands for two-anchor
    tasks or for tasks of any kind."""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function by name."""
        return inspect.signature(self.function).parameters


def spec_of(probe: Callable[..., Any]) -> ProbeSpec:
    """Return the spec of a probe.

    Your own function may have the attribute `task_kind`.
    """
    return getattr(probe, "spec", None) or ProbeSpec(probe, task_kind=getattr(probe, "task_kind", None))


def takes_any(**marks: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a probe accept a checkpoint, a result of `train` or a path as its model (`ModelInput`).

    The default task is the task of the checkpoint. A probe that uses only weights ignores the task. The
    option `config` is the configuration of a model whose file is a bare state dict (see `open_checkpoint`).
    If a problem with the model does not prevent the measurement, the probe warns. The error for an unknown
    option suggests a similar option.

    Args:
        marks: the fields of the probe's `ProbeSpec`.
    """

    def decorated(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def probe(model: ModelInput, task: Task | None = None, *args: Any, **options: Any) -> Any:
            return call(probe, model, task, *args, **options)

        signature = inspect.signature(function)
        changed = {"model": {"annotation": "ModelInput"}, "task": {"default": None}}
        parameters = [one.replace(**changed.get(name, {})) for name, one in signature.parameters.items()]
        config = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="ModelConfiguration | None"
        )
        signature = signature.replace(parameters=[*parameters, config])
        vars(probe).update(spec=ProbeSpec(function, **marks), __signature__=signature)
        return probe

    return decorated


def needs_task(probe: Callable[..., Any], options: Iterable[str] = ()) -> bool:
    """Return whether a probe needs the task of a model for a call with these options.

    A probe that uses only weights does not need a task. With the option `tokens`, `attention_patterns` and
    `activation_patching` do not need a task.

    Args:
        probe: a probe of `PROBES`, or your own function of the same form.
        options: the names of the options in the call.

    >>> from anchorlens import probes
    >>> needs_task(probes.stable_rank), needs_task(probes.mask_key_token)
    (False, True)
    >>> needs_task(probes.attention_patterns), needs_task(probes.attention_patterns, ["tokens"])
    (True, False)
    """
    spec = spec_of(probe)
    if spec.on_tokens:
        return "tokens" not in options
    task = spec.parameters.get("task")
    return task is not None and task.default is task.empty


def is_for(probe: Callable[..., Any], task_kinds: Iterable[str]) -> bool:
    """Return whether a probe supports tasks of any kind, or of a kind in `task_kinds`."""
    return spec_of(probe).task_kind in (None, *task_kinds)


def needs_initial(probe: Callable[..., Any]) -> bool:
    """Return whether a probe needs the initial model of a run.

    Args:
        probe: a probe of `PROBES`, or your own function of the same form.

    >>> from anchorlens import probes
    >>> [probe.__name__ for probe in probes.PROBES if needs_initial(probe)]
    ['training_regime']
    """
    return "initial" in spec_of(probe).parameters


def needs_training_set(probe: Callable[..., Any]) -> bool:
    """Return whether a probe needs the training data of the model.

    Args:
        probe: a probe of `SHIPPED`, or your own function of the same form.

    >>> from anchorlens import probes
    >>> [probe.__name__ for probe in probes.SHIPPED if needs_training_set(probe)]
    ['holdout']
    """
    return "training_set" in spec_of(probe).parameters


def given_for(
    probe: Callable[..., Any],
    model: ModelInput,
    task: Task | None = None,
    options: Iterable[str] = (),
    **how: Any,
) -> LoadedModel:
    """Resolve a caller's input to the model and the task for a probe.

    Args:
        probe: a probe of `PROBES`, or your own function of the same form.
        model: the model, or a checkpoint, a result of `train` or a path that contains the model.
        task: the task of the model. A probe that uses only weights ignores the task.
        options: the names of the options in the call.
        **how: the options `config`, `device` and `name` of `resolve`.

    Raises:
        ValueError: If the input contains no model.
        ValueError: If the task is invalid or differs from the task of the checkpoint.
        CheckpointError: If a file cannot be read.
    """
    reads_task, asks = "task" in spec_of(probe).parameters, needs_task(probe, options)
    runs_it = reads_task and (asks or task is not None or "tokens" in options or needs_training_set(probe))
    given = resolve(model, task if reads_task else None, runs_it=runs_it, **how)
    if (asks and spec_of(probe).task_kind is None) or PAPERS_TASK not in given.notes:
        return given
    notes = tuple(note for note in given.notes if note != PAPERS_TASK)
    return replace(given, task=None, notes=notes)  # the task is assumed only for a probe that needs one


def call(
    probe: Callable[..., Any],
    model: ModelInput,
    task: Task | None = None,
    /,
    *args: object,
    initial: ModelInput | None = None,
    config: ModelConfiguration | None = None,
    **options: object,
) -> Any:
    """Call a function of a model as `apply` calls a probe, and return the result of the function.

    Args:
        probe: a function with the arguments of a probe.
        model: the model to measure.
        task: the task that the model was trained on.
        *args: the positional options.
        initial: the model at the start of the run.
        config: the configuration of `model` or `initial`, if its file is a bare state dict (see
            `open_checkpoint`).
        **options: the options of the function.

    Raises:
        ValueError: If an option is unknown.
        ValueError: If the task is missing.
        ValueError: If the initial model is missing. `call` does not catch errors of the function.
    """
    spec = spec_of(probe)
    function, parameters = spec.function, spec.parameters
    names = [name for name in parameters if name not in ("model", "task", "initial")]
    by_place = [name for name in names if parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(args) > len(by_place):
        raise ValueError(
            f"the options of {probe.__name__} must be given by name, got {len(args)} positional arguments "
            f"after model and task. Name each option"
        )
    options |= dict(zip(by_place, args, strict=False))
    check_names(probe.__name__, options, names, what="option")
    if config is not None and "config" in names:  # an option of your own
        options["config"], config = config, None
    given = given_for(probe, model, task, options, config=config)
    kind, kind_given = spec.task_kind, None if given.task is None else given.task.kind
    if needs_task(probe, options) and (kind_given is None or kind not in (None, kind_given)):
        tokens = ", or tokens" if spec.on_tokens else ""
        raise ValueError(
            f"{probe.__name__} must get the {kind or 'two-anchor'} task of the model, got "
            f"{kind_given or 'none'}. Give the task{tokens}, or use a probe of weights alone, for example "
            "stable_rank"
        )
    if given is not model:
        for note in given.notes:
            warnings.warn(note, stacklevel=4)
    start = None
    if needs_initial(probe):
        if initial is None and given.checkpoint is None:
            raise ValueError(
                f"{probe.__name__} must get the model at the start of its run, got none. Give initial, or a "
                "checkpoint with a seed"
            )
        if initial is None:
            start = given.initial_model()
        else:
            of_path = config if isinstance(initial, str | os.PathLike) else None
            start = given_for(probe, initial, None, options, config=of_path).model
    if needs_training_set(probe) and options.get("training_set") is None and given.checkpoint is not None:
        options["training_set"] = given.checkpoint.training_set()
    models = [given.model, start]
    own = assert_unmodified(probe.__name__, *models) if is_own(function) else contextlib.nullcontext(models)
    with lock_of(given.model), own as (model, start), not_ending(probe.__name__):
        task = copied(given.task) if is_own(function) else given.task
        by_name = {"model": model, "task": task, "initial": start}
        arguments = {name: value for name, value in by_name.items() if name in parameters}
        return function(*([] if "model" in arguments else [model]), **arguments, **options)


@dataclass(frozen=True, eq=False)
class ProbeResult(ABC):
    """The base class of results, which are frozen dataclasses of documented readings, CPU arrays and options.

    Your own result class must define `probe`, fields, `headline` and `plot`.
    """

    probe: ClassVar[str]
    """The name of the probe, equal to the names of its function and its file."""
    readings: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that contain readings, the most informative reading first. Each reading
    summarises the measurement in one value. A reading that does not apply is `None`."""
    comparable_axes: ClassVar[bool] = True
    """Whether the axes of two plots have the same meaning. The axes of a t-SNE differ between plots."""

    def __init_subclass__(cls, **options: object) -> None:
        """Keep the one-line repr, which a dataclass would replace with a repr of every array."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = ProbeResult.__repr__

    @abstractmethod
    def headline(self) -> str:
        """Return the most important reading, with its meaning, on one line."""

    def in_short(self) -> str:
        """Return what the line of a verdict and a row along training name; an empty text names nothing."""
        return ""

    @abstractmethod
    def plot(self) -> go.Figure:
        """Return the plot as a figure.

        The method does not measure, display or save anything.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return every field by its name, as JSON data, with null for NaN and infinity.

        Raises:
            ValueError: If a field of your own result class cannot be written as JSON.
        """
        fields = {}
        for field in dataclasses.fields(self):
            try:
                fields[field.name] = _plain(getattr(self, field.name))
            except TypeError as error:
                raise ValueError(
                    f"the field {field.name} of {type(self).__name__} must be numbers, text, arrays, or "
                    f"lists or dicts of them, got {error}. Change the field"
                ) from None
        return {"probe": self.probe, "schema_version": SCHEMA_VERSION, **fields}

    def numbers(self) -> dict[str, float | None]:
        """Return the readings by name."""
        return {name: getattr(self, name) for name in self.readings}

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.headline()})"


@dataclass_transform(frozen_default=True, eq_default=False)
def probe_result(cls: type[T]) -> type[T]:
    """Make a result class a frozen dataclass whose `help()` describes the fields."""
    return frozen_dataclass(eq=False, repr=False)(cls)


@probe_result
class Numbers(ProbeResult):
    """The result of your own function that returns a number, or a mapping from names to numbers."""

    values: Mapping[str, float | None]
    """The numbers by name, in the order of the mapping. A missing number is `None`."""

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers by name."""
        return dict(self.values)

    def headline(self) -> str:
        """Return at most five names with their numbers."""
        shown = list(self.values.items())[:_MOST_IN_HEADLINE]
        text = ", ".join(f"{name} {'-' if value is None else f'{value:.3g}'}" for name, value in shown)
        return text + (", ..." if len(shown) < len(self.values) else "")

    def plot(self) -> go.Figure:
        """Plot a bar for each number."""
        from anchorlens.plots.from_specs import figure_of
        from anchorlens.tasks.shared.figure_specs import Bars

        measured = {name: value for name, value in self.values.items() if value is not None}
        return figure_of(Bars(self.probe, "", x_title="value", y=measured))


def result_of(name: str, returned: object) -> ProbeResult:
    """Return what a probe returned as a result: a number and a mapping of numbers become `Numbers`.

    Args:
        name: the name of the probe.
        returned: what the probe returned. `None`, NaN and infinity are missing numbers.

    Raises:
        ValueError: If the probe returned something else, or no number at all.
        ValueError: If a result of your own class has no name of its probe.
    """
    if isinstance(returned, ProbeResult):
        if not hasattr(returned, "probe"):
            raise ValueError(
                f"the result {type(returned).__name__} must have the name of its probe, got none. Write "
                f'probe = "{name}" into the class'
            )
        return returned
    named = returned if isinstance(returned, Mapping) else {name: returned}
    values = {safe_text(key): finite_number(safe_text(key), value) for key, value in named.items()}
    if not values or len(values) < len(named):
        raise ValueError(
            f"{name} must return one or more readings with different names, got {safe_repr(list(values))}. "
            "Name each reading"
        )
    return type("Numbers", (Numbers,), {"probe": name, "readings": tuple(values)})(values)


def finite_number(name: str, value: Any) -> float | None:
    """Convert a value to a finite number; `None` for `None`, NaN and infinity.

    Raises:
        ValueError: If the value is something else.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value  # a NumPy or torch scalar
        found = math.nan if plain is None else None if isinstance(plain, str | bytes) else float(plain)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        found = None
    if found is None:
        raise ValueError(
            f"{name} must be a number, or None for an undefined value, got {safe_repr(value)}. Return a "
            "number, a mapping from names to numbers, or a ProbeResult"
        )
    return found if math.isfinite(found) else None


def number(value: float) -> float | None:
    """Return a reading as a float, or `None` if the reading is NaN and thus does not apply.

    >>> number(0.5), number(float("nan"))
    (0.5, None)
    """
    return None if math.isnan(value) else float(value)


def mean_number(values: Float[np.ndarray, " value"]) -> float | None:
    """Return the mean of the finite values, or `None` if no value is finite."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _plain(value: object) -> Any:
    """Return a value as JSON data.

    Raises:
        TypeError: If the value cannot be written as JSON. The message is the type of the value.
    """
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _plain(value.tolist())
    if isinstance(value, dict):
        plain = {str(key): _plain(item) for key, item in value.items()}
        if len(plain) < len(value):
            found = f"a dict whose keys are equal as text, {safe_repr(list(value))}"
            raise TypeError(found)
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(type(value).__name__)
