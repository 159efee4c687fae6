"""One option for every field of the three configurations, with the help that stands under the field."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anchorlens import safe
from anchorlens.configuration import field_docs, field_types
from anchorlens.safe import printable, shown

if TYPE_CHECKING:
    from anchorlens.tasks.shared.base import Task

_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

_SEVERAL = ("data",)
"""Fields that hold several paths; an option takes one, and may be given more than once."""

OwnProbes = Annotated[
    list[Path] | None,
    typer.Option(
        "--probes",
        help="A Python file with probes of your own; they join the shipped ones. The file is run. May be "
        "given more than once.",
        readable=False,  # what cannot be read is reported when it is opened, as other errors are
    ),
]
OwnTasks = Annotated[
    list[Path] | None,
    typer.Option(
        "--tasks",
        help="A Python file with tasks of your own; they join the shipped ones. The file is run. May be "
        "given more than once.",
        readable=False,
    ),
]
"""Read before the command's other options are, which its tasks' fields may be among: see `BoundedGroup`."""
ConfigOfBare = Annotated[
    Path | None,
    typer.Option(
        help="What bare state dicts are: TOML or JSON.", exists=True, dir_okay=False, readable=False
    ),
]


TrainData = Annotated[
    Path | None,
    typer.Option(
        help="What the checkpoints were trained on that do not carry their own training data: tokens and "
        "targets in a .pt, .safetensors, .npz or CSV file.",
        exists=True,
        dir_okay=False,
        readable=False,
    ),
]


TaskFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Where the files of the checkpoints' task lie now, if they were moved: of text its files, of "
        "cogs its folder. May be given more than once.",
    ),
]


def with_field_options(
    command: Callable[..., None], *, axes: bool = False, short: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Give a command that takes `**fields` one option for every field.

    Args:
        command: its other parameters are options or arguments of its own.
        axes: whether an option takes several values, as text, in place of one of the field's type.
        short: another name of an option -> the field.
    """
    from anchorlens.tasks.kinds import TASKS

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "fields"]
    own = [p.replace(kind=_KEYWORD_ONLY) for p in own]

    def offer(tasks: Sequence[type[Task]]) -> None:
        parameters = [*own, *_options(axes, short or {}, tasks)]
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {p.name: p.annotation for p in parameters}

    offer(TASKS)
    command.offer_fields_of = offer  # pyright: ignore[reportFunctionMemberAccess]
    del command.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    return command


def _options(axes: bool, short: Mapping[str, str], tasks: Sequence[type[Task]]) -> list[inspect.Parameter]:
    """A command line option for every field of the tasks, of ModelConfig and of TrainConfig, and the task."""
    from anchorlens.runs.run_config import part_classes

    kinds = ", ".join(task.kind for task in tasks)
    text = f"What is asked: {kinds}. Default {tasks[0].kind}."
    option = typer.Option("--task", help=text, rich_help_panel="task", show_default=False)
    parameters = [
        inspect.Parameter("kind", _KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])
    ]
    parts = part_classes(tasks)
    for part, cls in parts:
        docs, given = field_docs(cls), {parameter.name for parameter in parameters}
        dataclass_fields = vars(cls)["__dataclass_fields__"]
        if part == "task":
            part = f"task {cls.kind}"  # pyright: ignore[reportAttributeAccessIssue]
        for name, types in field_types(cls).items():
            if name in given:  # of another task too, with whose option it stands
                continue
            text = (
                docs.get(name, "")
                + (" As JSON." if _is_json(types) else "")
                + _default(dataclass_fields[name])
            )
            for other in [owner for _, owner in parts if owner is not cls and name in field_types(owner)]:
                types = _either(types, field_types(other)[name])
                field = vars(other)["__dataclass_fields__"][name]
                text += f" Of {vars(other)['kind']}: {field_docs(other).get(name, '')}{_default(field)}"
            names = [name, *(other for other in short if short[other] == name)]
            flags = [f"--{each.replace('_', '-')}" for each in names]
            if types == (bool,) and not axes:
                flags = []  # with --no-...
            panel = f"{part} ({cls.__name__})"
            kind = str if axes else _option_type(types)
            if name in _SEVERAL and not axes:
                kind, text = list[str], f"{text} May be given more than once."
            option = typer.Option(*flags, help=text, rich_help_panel=panel, show_default=False)
            hint = Annotated[kind | None, option]
            parameters.append(inspect.Parameter(name, _KEYWORD_ONLY, default=None, annotation=hint))
    return parameters


def _default(field: Any) -> str:
    """The default of a field, in words, where it is a plain value."""
    value = field.default
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return f" Default {value}." if plain else ""


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
    kind, *others = (each for each in types if each is not type(None))
    is_plain = kind in (int, float, str, bool) or typing.get_origin(kind) is Literal
    return kind if is_plain and not others else str


def _is_json(types: tuple[Any, ...]) -> bool:
    """Whether a field of these types is given as JSON: it is no plain value."""
    return _option_type(types) is str and str not in types


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, with JSON read where a field is no plain value."""
    from anchorlens.runs.run_config import part_classes

    types = {"kind": (str,)}
    types |= {name: kinds for _, cls in part_classes() for name, kinds in field_types(cls).items()}
    fields = {name: _joined(value) for name, value in fields.items()}
    return {
        name: read_json(name, value) if isinstance(value, str) and _is_json(types[name]) else value
        for name, value in fields.items()
        if value is not None
    }


def _joined(value: Any) -> Any:
    """Several paths as a field has them, and everything else as it is; None where there are none."""
    return os.pathsep.join(value) or None if isinstance(value, list) else value


def read_json(name: str, text: str) -> Any:
    """The value of a field that is no plain one.

    Raises:
        ValueError: the text is no JSON.
    """
    try:
        return safe.read_json(text)
    except ValueError as error:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} must be JSON, got {shown(text)}, which {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds.

    Raises:
        ValueError: it is none, or cannot be read.
    """
    content = _content(path, printable(path), "; give a TOML file")
    try:
        return safe.read_toml(content)
    except ValueError as error:
        raise ValueError(f"{printable(path)}: not a TOML file: {error}") from None


def check_config(path: Path | None) -> None:
    """Check that the file of `--config` can be read, before a checkpoint is blamed for it.

    Raises:
        ValueError: it cannot.
    """
    if path is not None:
        _content(path, f"--config {printable(path)}")


def _content(path: Path, called: str, advice: str = "") -> bytes:
    try:
        return safe.read_bytes(path)
    except OSError as error:
        raise ValueError(f"{called}: {printable(error.strerror)}{advice}") from None
    except ValueError as error:
        raise ValueError(f"{called}: {error}") from None
