"""Base of the configurations: checked fields, strict reading, JSON-ready writing, and their field docs."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import numbers
import operator
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Self, TypeVar, get_origin

import numpy as np

from anchorlens.safe import safe_repr
from anchorlens.views import html

T = TypeVar("T")

_LONGEST_NAME = 60
"""Characters of a misspelt name that are compared with others."""
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_NUMBER = 1e300


def number(default: float | None, **bounds: float | Callable[[Any], float]) -> Any:
    """A field of a `Config` that is a number within bounds, those of `check_number`.

    A bound that other fields decide is a function of the configuration. That it must be an integer says the
    field's type.
    """
    return dataclasses.field(default=default, metadata=bounds)


@functools.cache
def field_types(cls: type) -> dict[str, tuple[Any, ...]]:
    """Field of a configuration dataclass -> its types; of an optional one the last is `NoneType`."""
    hints = typing.get_type_hints(cls)
    types = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    unions = (typing.Union, UnionType)
    return {n: typing.get_args(hint) if get_origin(hint) in unions else (hint,) for n, hint in types.items()}


class Config:
    """Base of the configurations, frozen dataclasses: they check their fields and travel as data."""

    def __post_init__(self) -> None:
        """Check numbers, texts, choices and truth values by type and bounds; NumPy's become Python's own.

        Raises:
            ValueError: a field is of another type, or out of its bounds.
        """
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, np.generic):
                value = value.item()
                object.__setattr__(self, name, value)
            kind, *others = field_types(type(self))[name]
            if (value is None and type(None) in others) or (isinstance(value, str) and str in others):
                continue  # the class itself checks what a text may say
            if get_origin(kind) is Literal:
                check_choice(name, value, typing.get_args(kind))
            elif kind in (int, float):
                bounds: Any = {k: b(self) if callable(b) else b for k, b in field.metadata.items()}
                check_number(name, value, integer=kind is int, **bounds)
            elif kind is bool and not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, got {safe_repr(value)}")
            elif kind is str and not isinstance(value, str):
                example = f", {field.default!r} for example" if field.default else ""
                raise ValueError(f"{name} must be text{example}, got {safe_repr(value)}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {name: getattr(self, name) for name in field_types(type(self))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a configuration from JSON or TOML data.

        Raises:
            ValueError: an unknown field, with the closest known one, or an unusable value.
        """
        names = list(field_types(cls))
        for key in values:
            if key not in names:
                raise ValueError(f"{cls.__name__} has no field {safe_repr(key)}; {suggestion(key, names)}")
        return cls(**values)

    _repr_html_ = html


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """One field of a configuration, as pages and notebooks tell of it."""

    name: str
    """The name of the field."""
    value: Any
    """Its value, JSON-ready."""
    meaning: str
    """The docstring under the field, in one line."""
    default: Any = None
    """Its value where nothing is said."""
    changed: bool = False
    """Whether it has another value."""


def settings(config: Config) -> list[Setting]:
    """Every field of a configuration, in order."""
    docs, default = field_docs(type(config)), type(config)()
    return [
        Setting(name, value, docs.get(name, ""), usual, getattr(config, name) != usual)
        for name, value in config.to_dict().items()
        if name in field_types(type(config))  # the kind of a task is no setting
        for usual in (getattr(default, name),)
    ]


def suggestion(name: Any, names: Sequence[str]) -> str:
    """Suggest the name that was probably meant by `name`."""
    close = difflib.get_close_matches(str(name)[:_LONGEST_NAME], names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"try one of {', '.join(names)}"


def check_number(
    name: str,
    value: Any,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    limit: float | None = None,
    integer: bool = False,
) -> None:
    """Check one number of a configuration.

    Args:
        name: what an error calls it.
        value: what is checked.
        minimum: the smallest it may be.
        above: what it must be larger than.
        maximum: the largest it may be.
        limit: a bound that only an absurd value meets, and that is spoken of only then; 2**63 - 1 of an
            integer and 1e300 of a number where nothing is said.
        integer: whether it must be an integer.

    Raises:
        ValueError: `value` is no finite number of the kind asked for, or lies outside the range.
    """
    kind = numbers.Integral if integer else numbers.Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    is_number = is_number and value == value and abs(value) != float("inf")
    number: Any = value
    largest = limit or (_LARGEST_INTEGER if integer else _LARGEST_NUMBER)
    if is_number and maximum is None and number > largest:
        maximum = largest
    if is_number and minimum is None and above is None and number < -largest:
        minimum = -largest
    bounds = [(">=", minimum), (">", above), ("<=", maximum)]
    holds = {">=": operator.ge, ">": operator.gt, "<=": operator.le}
    bounds = [(sign, bound) for sign, bound in bounds if bound is not None]
    if is_number and all(holds[sign](number, bound) for sign, bound in bounds):
        return
    limits = " and ".join(f"{sign} {bound}" for sign, bound in bounds)
    words = "an integer" if integer else "a finite number"
    raise ValueError(f"{name} must be {words}{limits and ' '}{limits}, got {safe_repr(value)}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Check that `value` is one of `choices`.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {safe_repr(value)}")


def documented(cls: type[T]) -> type[T]:
    """Put the docstring under each field into the class docstring too, where `help()` shows it."""
    docs = field_docs(cls)
    if not docs:
        return cls
    lines = [f"    {name}: {doc}" for name, doc in docs.items()]
    wrapped = [textwrap.fill(line, 100, subsequent_indent=" " * 8) for line in lines]
    text = inspect.cleandoc(cls.__doc__ or "")
    cls.__doc__ = "\n".join([text, "", "Attributes:", *wrapped])
    return cls


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, as one line each, those of its bases first.

    Empty for a class whose source Python does not find, one that was written in a notebook for example.
    """
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    bases = filter(dataclasses.is_dataclass, reversed(cls.__bases__))
    docs = {name: doc for base in bases for name, doc in field_docs(base).items()}
    for field, doc in itertools.pairwise(body.body):
        match field, doc:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
