"""The base of the configurations: checked fields, strict reading, JSON-ready writing, and field docs."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import itertools
import numbers
import operator
import os
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, TypeVar, dataclass_transform, get_origin

from anchorlens.texts import safe_repr

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_NAME = 60
"""The number of characters of a misspelt name that are compared with other names."""
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_NUMBER = 1e300


def number(default: float | None, **bounds: float | Callable[[Any], float]) -> Any:
    """Make a numeric field of a `Config`, with the bounds of `check_number`.

    A bound that depends on other fields is a function of the configuration. The field's type determines
    whether the number must be an integer.
    """
    return dataclasses.field(default=default, metadata=bounds)


@functools.cache
def field_types(cls: type) -> dict[str, tuple[Any, ...]]:
    """Return the types of each field of a configuration dataclass, by the name of the field.

    The last type of an optional field is `NoneType`.
    """
    hints = typing.get_type_hints(cls)
    types = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    unions = (typing.Union, UnionType)
    return {n: typing.get_args(hint) if get_origin(hint) in unions else (hint,) for n, hint in types.items()}


class Config:
    """The base class of configurations: frozen dataclasses that check their fields and convert to data."""

    def __new__(cls, *args: object, **fields: object) -> Self:
        """Check the names of the fields.

        Raises:
            ValueError: If a field is unknown.
        """
        names = [field.name for field in dataclasses.fields(cls)]  # pyright: ignore[reportArgumentType]
        check_names(cls.__name__, fields, names)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check numbers, texts, choices and truth values by type and bounds, and make them Python values.

        Numbers of NumPy and torch, numbers in a text and integers that are written as floats are converted to
        the field's type if the conversion is exact.

        Raises:
            ValueError: If a field has another type, or is out of its bounds.
        """
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            name, given = field.name, getattr(self, field.name)
            kind, *others = field_types(type(self))[name]
            value = exactly(given, kind)
            if (value is None and type(None) in others) or (isinstance(given, str) and str in others):
                continue  # the class itself checks what a text may say
            if value is not given:
                object.__setattr__(self, name, value)
            if get_origin(kind) is Literal:
                check_choice(name, value, typing.get_args(kind))
            elif kind in (int, float):
                bounds: Any = {k: b(self) if callable(b) else b for k, b in field.metadata.items()}
                check_number(name, value, integer=kind is int, **bounds)
            elif kind is bool and not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, got {safe_repr(value)}")
            elif kind is str and not isinstance(value, str):
                example = f" such as {field.default!r}" if field.default else ""
                raise ValueError(f"{name} must be text{example}, got {safe_repr(value)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, JSON-ready."""
        return {name: getattr(self, name) for name in field_types(type(self))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a configuration from JSON or TOML data.

        Raises:
            ValueError: If a field is unknown or a value is invalid. The message names the closest known
                field.
        """
        check_names(cls.__name__, values, list(field_types(cls)))
        return cls(**values)


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A field of a configuration, for pages and notebooks."""

    name: str
    """The name of the field."""
    value: Any
    """The value of the field, JSON-ready."""
    meaning: str
    """The docstring under the field, in one line."""
    default: Any = None
    """The default value of the field."""
    changed: bool = False
    """Whether the value differs from the default."""


def settings(config: Config) -> list[Setting]:
    """Return every field of a configuration, in order."""
    docs, default = field_docs(type(config)), type(config)()
    return [
        Setting(name, value, docs.get(name, ""), usual, getattr(config, name) != usual)
        for name, value in config.to_dict().items()
        if name in field_types(type(config))  # the kind of a task is no setting
        for usual in (getattr(default, name),)
    ]


def suggestion(name: object, names: Sequence[str]) -> str:
    """Suggest the known name that is closest to `name`."""
    close = difflib.get_close_matches(str(name)[:_LONGEST_NAME], names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Use one of {', '.join(names)}."


def check_names(owner: str, given: Iterable[str], names: Sequence[str], *, what: str = "field") -> None:
    """Check names that a caller gives against the known names.

    Args:
        owner: the name of the owner of the fields, options or arguments.
        given: the names that the caller gives.
        names: the known names.
        what: the kind of name, such as `field`, `option` or `argument`.

    Raises:
        ValueError: If a name is unknown. The message suggests the closest known name.
    """
    for name in given:
        if name not in names:
            advice = suggestion(name, names) if names else f"Omit the {what}"
            if what == "option" and advice.startswith("Did"):
                advice += f" The options are {', '.join(names)}."
            raise ValueError(f"{owner} must get a known {what}, got {safe_repr(name)}. {advice}")


def checked_arguments(elsewhere: Callable[[str], str | None] = lambda name: None) -> Callable[[F], F]:
    """Let a function suggest the probable name for an unknown keyword argument.

    Args:
        elsewhere: the function that takes the name of an unknown argument, and returns advice or None.

    >>> @checked_arguments()
    ... def classify(model, *, device="auto"): ...
    >>> classify("ckpt.pt", devise="cpu")
    Traceback (most recent call last):
    ValueError: classify must get a known argument, got 'devise'. Did you mean 'device'?
    """

    def checked(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        names = [one.name for one in parameters if one.kind not in (one.POSITIONAL_ONLY, one.VAR_KEYWORD)]

        @functools.wraps(function)
        def called(*args: object, **options: object) -> Any:
            for name in options.keys() - names:
                if advice := elsewhere(name):
                    raise ValueError(
                        f"{function.__name__} must get a known argument, got {safe_repr(name)}. {advice}"
                    )
            check_names(function.__name__, options, names, what="argument")
            return function(*args, **options)

        return called  # pyright: ignore[reportReturnType]

    return checked


def check_kind(name: str, value: object, kind: type, example: str, advice: str = "") -> None:
    """Check that an argument is an instance of a class.

    Args:
        name: the name of the argument.
        value: the given value.
        kind: the class.
        example: an expression that makes an object of the class.
        advice: what to do, unless the value is a table of fields.

    Raises:
        ValueError: If the value is of another class.
    """
    if not isinstance(value, kind):
        got = type(value).__name__
        if isinstance(value, Mapping):
            advice = f". Write the table of fields as {example.replace('()', '(**fields)')}"
        raise ValueError(f"{name} must be {article(kind.__name__)}, for example {example}, got {got}{advice}")


def as_path(name: str, value: object) -> Path:
    """Convert a caller's argument to a path.

    Raises:
        ValueError: If the argument is not a path.
    """
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{name} must be a path, got {article(type(value).__name__)}")
    if value == "":
        raise ValueError(f"{name} must be a path, got an empty text. Give a path")
    return Path(value)


def article(noun: str) -> str:
    """Put the indefinite article before a noun.

    >>> article("AnchorTask"), article("ModelConfig")
    ('an AnchorTask', 'a ModelConfig')
    """
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def exactly(value: Any, kind: Any) -> Any:
    """Convert a value to the type of a field if the conversion is exact; else return the value unchanged.

    Args:
        value: a value, such as a number of NumPy or torch, a number in a text, or an integer written as a
            float.
        kind: the type of the field.

    >>> exactly("0.5", float), exactly(1e3, int), exactly("12", int), exactly(2.5, int)
    (0.5, 1000, 12, 2.5)
    """
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):
        value = value.item()
    if kind in (int, float) and isinstance(value, str) and len(value) <= _LONGEST_NAME:
        with contextlib.suppress(ValueError):
            value = int(value) if value.strip("+-").isdecimal() else float(value)
    if kind is int and isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    return value


def check_number(
    name: str,
    value: Any,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    limit: float | None = None,
    integer: bool = False,
    optional: bool = False,
) -> None:
    """Check one number of a configuration.

    Args:
        name: the name of the value in an error.
        value: the value to check.
        minimum: the smallest allowed value.
        above: the bound that the value must exceed.
        maximum: the largest allowed value.
        limit: a bound that excludes extremely large values. An error shows this bound only if the value
            exceeds the bound. Default: 2**63 - 1 for an integer, 1e300 for any other number.
        integer: whether the value must be an integer.
        optional: whether the value may be None.

    Raises:
        ValueError: If `value` is not a finite number of the required type, or is outside the range.
    """
    if optional and value is None:
        return
    kind: Any = numbers.Integral if integer else numbers.Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    is_number = is_number and value == value and abs(value) != float("inf")
    largest = limit or (_LARGEST_INTEGER if integer else _LARGEST_NUMBER)
    if is_number and maximum is None and value > largest:
        maximum = largest
    if is_number and minimum is None and above is None and value < -largest:
        minimum = -largest
    bounds = [(">=", operator.ge, minimum), (">", operator.gt, above), ("<=", operator.le, maximum)]
    bounds = [each for each in bounds if each[2] is not None]
    if is_number and all(holds(value, bound) for _, holds, bound in bounds):
        return
    limits = " and ".join(f"{sign} {bound}" for sign, _, bound in bounds)
    words = "an integer" if integer else "a finite number"
    raise ValueError(f"{name} must be {words}{limits and ' '}{limits}, got {safe_repr(value)}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Check that `value` is one of `choices`.

    Args:
        name: the name of the value in an error.
        value: the value to check.
        choices: the allowed values. The search for a suggestion ignores case, hyphens, underscores and text
            around a name.

    Raises:
        ValueError: If `value` is not one of `choices`.

    >>> check_choice("split", "SCAN-addprim_jump", ("jump", "simple"))
    Traceback (most recent call last):
    ValueError: split must be one of jump, simple, got 'SCAN-addprim_jump'. Did you mean 'jump'?
    """
    if value in choices:
        return
    given = _plain(str(value)[:_LONGEST_NAME])
    meant = {_plain(text): text for text in choices}
    inside = [text for text in meant if len(text) > 2 and text in given]
    close = sorted(inside, key=len)[-1:] or difflib.get_close_matches(given, meant, n=1)
    advice = f". Did you mean {meant[close[0]]!r}?" if close else ""
    raise ValueError(f"{name} must be one of {', '.join(choices)}, got {safe_repr(value)}{advice}")


def _plain(text: str) -> str:
    """Reduce a name to its letters and digits, in lower case."""
    return "".join(filter(str.isalnum, text.lower()))


def documented(cls: type[T]) -> type[T]:
    """Add the docstrings of the fields to the class docstring, so that `help()` shows every field."""
    text: Any = _WithFields(cls.__doc__)
    cls.__doc__ = text
    return cls


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen_dataclass(**options: bool) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass whose `help()` shows every field.

    Args:
        **options: further options of `dataclass`, such as `eq=False`.
    """
    return lambda cls: documented(dataclasses.dataclass(frozen=True, **options)(cls))


class _WithFields:
    """The docstring of a class with its fields, parsed from the source on the first access."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: object, cls: type) -> str | None:
        lines = [f"    {name}: {doc}" for name, doc in field_docs(cls).items()]
        wrapped = [textwrap.fill(line, 100, subsequent_indent=" " * 8) for line in lines]
        text = inspect.cleandoc(self.text or "")
        return "\n".join([text, "", "Attributes:", *wrapped]) if wrapped else self.text


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass by field name, each docstring as one line.

    The fields of base classes come first. The result is empty if Python does not find the source of the
    class, for example in a notebook.
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
