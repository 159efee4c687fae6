"""The options of `train` and `sweep`, with one option for every field and the field's docstring as help."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, TypeVar

import typer

from anchorlens import safe
from anchorlens.cli.help import TEXTS, Entry, Section, fields_of, value_name
from anchorlens.configuration import field_docs, field_types
from anchorlens.recipes.run_config import Parts, part_classes
from anchorlens.tasks.registry import tasks
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr

C = TypeVar("C", bound=Callable[..., object])

_SEVERAL = ("data",)
"""The fields with several paths. The option of each field takes one path, and the user may repeat the
option."""
_PATHS = (*_SEVERAL, "start")
_TITLES = {"task": "Task", "model": "Model", "train": "Training"}


def read_fields(ctx: typer.Context) -> dict[str, Any]:
    """Read the values of the given options of fields.

    Raises:
        ValueError: If a field needs JSON, and the text is not JSON.
    """
    return fields_of(ctx.command).read(ctx.meta[TEXTS])


class FieldOptions:
    """The options of a command for every field of the tasks that are registered when the options are read.

    The object is a decorator of a command with a parameter of the type `typer.Context`, which the command
    gives to `read_fields`.

    Args:
        axes: whether an option takes several values as text, instead of one value of the field's type.
        short: a map from alternative option names to fields.
        first: the options of the command that the short help always shows.
    """

    def __init__(self, *, short: Mapping[str, str], axes: bool = False, first: Sequence[str] = ()) -> None:
        self._axes, self._short = axes, short
        self.first = first

    def __call__(self, command: C) -> C:
        """Give a command these options."""
        command.field_options = self  # pyright: ignore[reportFunctionMemberAccess]
        return command

    def check(self, command: Any, kinds: Sequence[type[Task]]) -> None:
        """Check that no field of these kinds of task has the name of an option of the command.

        Raises:
            ValueError: If a field has such a name.
        """
        own = {flag.lstrip("-").replace("-", "_") for param in command.params for flag in param.opts}
        taken = {"help", "help_all", "kind", "task", *self._short, *own}
        for task in kinds:
            if clash := taken & field_types(task).keys():
                raise ValueError(
                    f"a field of a task must not have the name of an option of the command, got {min(clash)} "
                    f"of {task.__name__}. Rename the field"
                )

    def read(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Read the values of fields from the texts of their options."""
        values: dict[str, Any] = {}
        for name, kinds in {"kind": (str,), **_types()}.items():
            if (text := texts.get(name)) is not None:
                values[name] = os.pathsep.join(text) if isinstance(text, list) else text
                if isinstance(text, str) and not self._axes:
                    values[name] = _value(name, text, kinds)
        return values

    def add_to(self, parser: Any, param: Any) -> None:
        """Let a parser of Click read the options; `param` is any parameter of the command."""
        parser.add_option(param, ["--task"], "kind")
        for name, kinds in _types().items():
            flags = self.flags(name, kinds)
            if self._is_flag(kinds):
                for flag in flags:
                    is_on = flag != f"--no-{name.replace('_', '-')}"
                    parser.add_option(param, [flag], name, action="store_const", const=is_on)
            else:
                several = name in _SEVERAL and not self._axes
                parser.add_option(param, flags, name, action="append" if several else "store")

    def flags(self, name: str, kinds: Sequence[Any]) -> tuple[str, ...]:
        """Return the flags of a field of these types."""
        names = (name, *(short for short, field in self._short.items() if field == name))
        if self._is_flag(kinds) and NoneType not in kinds:
            names = (name, f"no_{name}")
        return tuple(f"--{each.replace('_', '-')}" for each in names)

    def _is_flag(self, kinds: Sequence[Any]) -> bool:
        return kinds[0] is bool and not self._axes

    def sections(self, kinds: Sequence[type[Task]] | None, base: Parts) -> list[Section]:
        """Collect the help of all fields of these tasks, their models and TrainConfig.

        None stands for all tasks.
        """
        types, sections = _types(), []
        for part, cls in part_classes(kinds):
            kind = f" {getattr(cls, 'kind', '')}" if part == "task" else ""
            given = base.get(part, {})
            entries = [self._entry(cls, name, types[name], given) for name in field_types(cls)]
            sections.append(Section(f"{_TITLES[part]}{kind} ({cls.__name__})", entries))
        return sections

    @staticmethod
    def task() -> Entry:
        """Make the help of the option of the task."""
        first, *others = (task.kind for task in tasks())
        kinds = ", ".join([f"{first} (default)", *others])
        text = f"Name of the task: {kinds}. --task NAME --help shows the options of a task."
        return Entry("kind", ("--task",), "NAME", "", text)

    def _entry(self, cls: type, name: str, kinds: Sequence[Any], given: Mapping[str, Any]) -> Entry:
        """Make the help of a field of one class.

        Other classes with this option have separate texts.
        """
        default = given.get(name, vars(cls)["__dataclass_fields__"][name].default)
        flags, text = self.flags(name, kinds), field_docs(cls).get(name, "")
        value = "PATH" if name in _PATHS else value_name(field_types(cls)[name])
        if self._axes and "|" not in value:
            value = "VALUES"
        elif name in _SEVERAL:
            text += " You can repeat this option."
        if isinstance(default, bool):
            default = f"{default}".lower() if self._axes else flags[not default]
        is_plain = isinstance(default, int | float | str) and default != ""
        return Entry(name, flags, value, f"{default}" if is_plain else "", text)


def _types() -> dict[str, tuple[Any, ...]]:
    """Return the types of every field; a field that several kinds of task or model share is one option."""
    types: dict[str, tuple[Any, ...]] = {}
    for _, cls in part_classes():
        for name, kinds in field_types(cls).items():
            types[name] = tuple(dict.fromkeys((*types.get(name, ()), *kinds)))
    return types


def _value(name: str, text: str, kinds: Sequence[Any]) -> Any:
    """Return the value of a field of these types: a text, or JSON if the types are not plain.

    The configuration converts the text of a number.
    """
    kind, *others = (kind for kind in kinds if kind is not NoneType)
    is_number = kind in (int, float) and not others
    is_text = is_number or str in kinds or typing.get_origin(kind) is Literal
    return text if is_text else read_json(name, text)


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
