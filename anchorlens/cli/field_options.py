"""The options of `train` and `sweep`, with one option for every field and the field's docstring as help."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anchorlens import safe
from anchorlens.cli.help import Entry, Section, value_name
from anchorlens.configuration import field_docs, field_types
from anchorlens.recipes.run_config import part_classes
from anchorlens.tasks.registry import TASKS, tasks
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from anchorlens.recipes.run_config import Parts
    from anchorlens.tasks.shared.base import Task

_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

_SEVERAL = ("data",)
"""The fields with several paths. The option of each field takes one path, and the user may repeat the
option."""
_PATHS = (*_SEVERAL, "start")
_TITLES = {"task": "Task", "model": "Model", "train": "Training"}


def with_field_options(
    command: Callable[..., None], *, axes: bool = False, short: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Give a command that takes `**fields` an option for every field.

    Args:
        command: the command, whose parameters other than `**fields` remain options and arguments.
        axes: whether an option takes several values as text, instead of one value of the field's type.
        short: a map from alternative option names to fields.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(kind=_KEYWORD_ONLY) for p in signature.parameters.values() if p.name != "fields"]

    taken = {"help", "help_all", "kind", "task", *(short or {}), *itertools.chain(*map(_names, own))}

    def offer(tasks: Sequence[type[Task]]) -> None:
        for task in tasks:
            if clash := taken & field_types(task).keys():
                raise ValueError(
                    f"a field of a task must not have the name of an option of the command, got {min(clash)} "
                    f"of {task.__name__}. Rename the field"
                )
        options = [
            inspect.Parameter(name, _KEYWORD_ONLY, default=None, annotation=hint)
            for name, hint in _options(axes, short or {}, tasks).items()
        ]
        command.__signature__ = inspect.Signature([*own, *options])  # pyright: ignore[reportFunctionMemberAccess]
        command.tasks_offered = tuple(tasks)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}

    try:
        offer(tasks())
    except ValueError:  # an installed package is broken; who calls the command is told so
        offer(TASKS)
    command.offer_fields_of = offer  # pyright: ignore[reportFunctionMemberAccess]
    command.field_sections = functools.partial(_sections, axes)  # pyright: ignore[reportFunctionMemberAccess]
    del command.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    return command


def _names(parameter: inspect.Parameter) -> list[str]:
    """Return the names of fields that would get the same flag as an option of a command."""
    _, option = typing.get_args(parameter.annotation)
    words = [option.default, *(option.param_decls or ())]  # typer keeps the first flag as the default
    flags = [word for word in words if isinstance(word, str) and word.startswith("--")]
    return [flag.removeprefix("--").replace("-", "_") for flag in flags] or [parameter.name]


def _options(axes: bool, short: Mapping[str, str], tasks: Sequence[type[Task]]) -> dict[str, Any]:
    """Make the options of the task's kind and of all fields of tasks, models and TrainConfig, by name."""
    first, *others = (task.kind for task in tasks)
    kinds = ", ".join([f"{first} (default)", *others])
    text = f"Name of the task: {kinds}. --task NAME --help shows the options of a task."
    option = typer.Option("--task", metavar="NAME", help=text, show_default=False)
    options: dict[str, Any] = {"kind": Annotated[str | None, option]}
    types: dict[str, tuple[Any, ...]] = {}
    for _, cls in part_classes(tasks):
        # a field that several kinds of task or model share is one option
        for name, own in field_types(cls).items():
            types[name] = _either(types[name], own) if name in types else own
    for name, own in types.items():
        flags = [f"--{flag.replace('_', '-')}" for flag in (name, *(s for s in short if short[s] == name))]
        kind = str if axes else _option_type(own)
        if own == (bool,) and not axes:
            flags = []  # with --no-...
        if name in _SEVERAL and not axes:
            kind = list[str]
        options[name] = Annotated[kind | None, typer.Option(*flags, show_default=False)]
    return options


def _sections(
    axes: bool, options: Mapping[str, Any], tasks: Sequence[type[Task]] | None, base: Parts
) -> list[Section]:
    """Collect the help of all fields of these tasks, their models and TrainConfig.

    None stands for all tasks.
    """
    sections = []
    for part, cls in part_classes(tasks):
        kind = f" {getattr(cls, 'kind', '')}" if part == "task" else ""
        given = base.get(part, {})
        entries = [_entry(axes, cls, options[name], given) for name in field_types(cls) if name in options]
        sections.append(Section(f"{_TITLES[part]}{kind} ({cls.__name__})", entries))
    return sections


def _entry(axes: bool, cls: type, option: Any, given: Mapping[str, Any]) -> Entry:
    """Make the help of a field of one class.

    Other classes with this option have separate texts.
    """
    name = option.name
    types, default = field_types(cls)[name], vars(cls)["__dataclass_fields__"][name].default
    default = given.get(name, default)
    flags, text = (*option.opts, *option.secondary_opts), field_docs(cls).get(name, "")
    value = "PATH" if name in _PATHS else value_name(types)
    if axes and "|" not in value:
        value = "VALUES"
    elif name in _SEVERAL:
        text += " You can repeat this option."
    if isinstance(default, bool):
        default = f"{default}".lower() if axes else flags[not default]
    is_plain = isinstance(default, int | float | str) and default != ""
    return Entry(name, flags, value, f"{default}" if is_plain else "", text)


def _either(types: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """Combine the types of a field that two tasks or models share, including named choices."""
    if {*types} - {type(None)} == {*others} - {type(None)}:  # it may be optional in one of them
        return max(types, others, key=len)
    if all(typing.get_origin(kind) is Literal for kind in (*types, *others)):
        choices = [choice for kind in (*types, *others) for choice in typing.get_args(kind)]
        return (Literal[tuple(dict.fromkeys(choices))],)
    return (str,)


def _option_type(types: tuple[Any, ...]) -> Any:
    """Return the type of an option, which is the type of a plain field, or text for JSON or a choice."""
    kind, *others = (kind for kind in types if kind is not type(None))
    return kind if kind in (int, float, str, bool) and not others else str


def _is_json(types: tuple[Any, ...]) -> bool:
    """Return whether a field of these types takes JSON, because the types are not plain."""
    is_choice = typing.get_origin(types[0]) is Literal
    return _option_type(types) is str and str not in types and not is_choice


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read the values of the given options.

    The function parses JSON for a field that needs JSON, and joins several paths into one text.
    """
    types = {name: kinds for _, cls in part_classes() for name, kinds in field_types(cls).items()}
    values = {}
    for name, value in fields.items():
        if isinstance(value, list):
            value = os.pathsep.join(value) or None
        if isinstance(value, str) and name != "kind" and _is_json(types[name]):
            value = read_json(name, value)
        if value is not None:
            values[name] = value
    return values


def read_json(name: str, text: str) -> Any:
    """Parse the JSON value of a field.

    Raises:
        ValueError: If the text is not JSON.
    """
    try:
        return safe.read_json(text)
    except ValueError as error:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} must be JSON, got {safe_repr(text)}: {error}") from None
