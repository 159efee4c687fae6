"""The options of `train` and `sweep` for every field of the configurations, explained by its docstring."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anchorlens import safe
from anchorlens.configuration import field_docs, field_types
from anchorlens.safe import safe_repr

if TYPE_CHECKING:
    from anchorlens.tasks.shared.base import Task

_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

_SEVERAL = ("data",)
"""Fields that hold several paths; an option takes one, and may be given more than once."""


def with_field_options(
    command: Callable[..., None], *, axes: bool = False, short: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Give a command that takes `**fields` one option for every field.

    Args:
        command: its other parameters are options or arguments of its own.
        axes: whether an option takes several values, as text, in place of one of the field's type.
        short: another name of an option -> the field.
    """
    from anchorlens.tasks.registry import TASKS

    signature = inspect.signature(command, eval_str=True)
    own = [p.replace(kind=_KEYWORD_ONLY) for p in signature.parameters.values() if p.name != "fields"]

    def offer(tasks: Sequence[type[Task]]) -> None:
        options = [_option(name, hint) for name, hint in _options(axes, short or {}, tasks).items()]
        command.__signature__ = inspect.Signature([*own, *options])  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}

    offer(TASKS)
    command.offer_fields_of = offer  # pyright: ignore[reportFunctionMemberAccess]
    del command.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    return command


def _option(name: str, hint: Any) -> inspect.Parameter:
    return inspect.Parameter(name, _KEYWORD_ONLY, default=None, annotation=hint)


def _options(axes: bool, short: Mapping[str, str], tasks: Sequence[type[Task]]) -> dict[str, Any]:
    """Name -> option, of the task's kind and every field of the tasks, the models and TrainConfig."""
    from anchorlens.runs.run_config import part_classes

    kinds = ", ".join(task.kind for task in tasks)
    text = f"What is asked: {kinds}. Default {tasks[0].kind}."
    option = typer.Option("--task", help=text, rich_help_panel="task", show_default=False)
    options: dict[str, Any] = {"kind": Annotated[str | None, option]}
    parts = part_classes(tasks)
    for part, cls in parts:
        panel = f"{part}{' ' + getattr(cls, 'kind', '') if part == 'task' else ''} ({cls.__name__})"
        own_types = field_types(cls)
        for name in (name for name in own_types if name not in options):
            types, text = own_types[name], _help(cls, name, _is_json(own_types[name]))
            for _, other in parts:  # a field that two kinds of task or model have is one option
                if other is not cls and name in field_types(other):
                    types = _either(types, field_types(other)[name])
                    text += f" Of {getattr(other, 'kind', '')}: {_help(other, name)}"
            flags = [
                f"--{flag.replace('_', '-')}" for flag in (name, *(s for s in short if short[s] == name))
            ]
            kind = str if axes else _option_type(types)
            if types == (bool,) and not axes:
                flags = []  # with --no-...
            if name in _SEVERAL and not axes:
                kind, text = list[str], f"{text} May be given more than once."
            option = typer.Option(*flags, help=text, rich_help_panel=panel, show_default=False)
            options[name] = Annotated[kind | None, option]
    return options


def _help(cls: type, name: str, as_json: bool = False) -> str:
    """The docstring of a field, and its default where that is a plain value."""
    default = vars(cls)["__dataclass_fields__"][name].default
    plain = isinstance(default, int | float | str) and not isinstance(default, bool)
    text = field_docs(cls).get(name, "") + (" As JSON." if as_json else "")
    return f"{text} Default {default}." if plain else text


def _either(types: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """The types of a field that two tasks or models have: of named choices those of both."""
    if {*types} - {type(None)} == {*others} - {type(None)}:  # in one of them it may be left open
        return max(types, others, key=len)
    if all(typing.get_origin(kind) is Literal for kind in (*types, *others)):
        choices = [choice for kind in (*types, *others) for choice in typing.get_args(kind)]
        return (Literal[tuple(dict.fromkeys(choices))],)
    return (str,)


def _option_type(types: tuple[Any, ...]) -> Any:
    """The type of an option: the field's own where the command line has it, else text (JSON)."""
    kind, *others = (kind for kind in types if kind is not type(None))
    is_plain = kind in (int, float, str, bool) or typing.get_origin(kind) is Literal
    return kind if is_plain and not others else str


def _is_json(types: tuple[Any, ...]) -> bool:
    """Whether a field of these types is given as JSON: it is no plain value."""
    return _option_type(types) is str and str not in types


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: JSON is read where a field is no plain value, several paths are joined."""
    from anchorlens.runs.run_config import part_classes

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
    """The value of a field that is no plain one.

    Raises:
        ValueError: the text is no JSON.
    """
    try:
        return safe.read_json(text)
    except ValueError as error:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} must be JSON, got {safe_repr(text)}, which {error}") from None
