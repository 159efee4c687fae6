"""What the configuration dataclasses share: strict reading, JSON-ready writing, and their field docs."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import numbers
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from anchorlens.foreign import shown
from anchorlens.views import view

T = TypeVar("T")

_LONGEST_NAME = 60
"""Characters of a misspelt name that are compared with others."""
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_NUMBER = 1e300


def from_mapping(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build the configuration dataclass `cls` from `values`; a key it does not have is refused.

    Raises:
        ValueError: an unknown key, with the closest known one.
    """
    known = [field.name for field in dataclasses.fields(cls)]  # pyright: ignore[reportArgumentType]
    for key in values:
        if key not in known:
            raise ValueError(f"{cls.__name__} has no field {shown(key)}; {suggestion(key, known)}")
    return cls(**values)


class Config:
    """What a configuration dataclass whose fields are plain values needs to travel as data."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        names = (field.name for field in dataclasses.fields(self))  # pyright: ignore[reportArgumentType]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a configuration from JSON or TOML data.

        Raises:
            ValueError: an unknown field or an unusable value.
        """
        return from_mapping(cls, values)

    def _repr_html_(self) -> str:
        return view("configuration.html", name=type(self).__name__, rows=settings(self))


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """One field of a configuration, as pages and notebooks tell of it."""

    name: str
    """Of the field."""
    value: Any
    """What it is set to, JSON-ready."""
    meaning: str
    """What it is."""
    default: Any = None
    """What it would be otherwise."""
    changed: bool = False
    """Whether it is something else."""


def settings(config: Any) -> list[Setting]:
    """Every field of a configuration dataclass with `to_dict`, in order."""
    values, docs = config.to_dict(), field_docs(type(config))
    found = []
    for field in dataclasses.fields(config):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        changed = getattr(config, field.name) != default
        found.append(Setting(field.name, values[field.name], docs.get(field.name, ""), default, changed))
    return found


def suggestion(name: Any, known: Sequence[str]) -> str:
    """What somebody who wrote `name` may have meant."""
    close = difflib.get_close_matches(str(name)[:_LONGEST_NAME], known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"try one of {', '.join(known)}"


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
    good = isinstance(value, numbers.Integral if integer else numbers.Real) and not isinstance(value, bool)
    good = good and value == value and abs(value) != float("inf")
    number: Any = value
    largest = limit or (_LARGEST_INTEGER if integer else _LARGEST_NUMBER)
    absurd = good and not -largest <= number <= largest and (maximum is None or maximum > largest)
    good = good and not absurd
    good = good and (minimum is None or number >= minimum) and (above is None or number > above)
    if good and (maximum is None or number <= maximum):
        return
    if absurd and number > 0:
        maximum = largest
    elif absurd and minimum is None and above is None:
        minimum = -largest
    bounds = ((">=", minimum), (">", above), ("<=", maximum))
    limits = " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)
    kind = "an integer" if integer else "a finite number"
    raise ValueError(f"{name} must be {kind}{limits and ' '}{limits}, got {shown(value)}")


def make_plain(config: Any) -> None:
    """Turn the NumPy scalars among the fields of a frozen dataclass into Python's own numbers."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(config, field.name, value.item())


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Check that `value` is one of `choices`.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")


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
    """The docstring under each field of a configuration dataclass, as one line each.

    None for a class whose source Python does not find, one that was written in a notebook for example.
    """
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
            and isinstance(doc.value.value, str)
        ):
            docs[field.target.id] = " ".join(doc.value.value.split())
    return docs
