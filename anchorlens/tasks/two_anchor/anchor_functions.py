"""Functions of one number as data: shifts and tables, from callables and from JSON."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anchorlens.foreign import shown

AnchorFunction = int | Mapping[int, int] | Callable[[int], int]
"""A function of one number: an int is a shift (x -> x + int), a mapping a table, or any callable."""

Pair = tuple[int, ...]
"""The anchors of one sequence in the order they stand; two of them in the papers."""

LARGEST = 1_000_000
"""Largest token, value and shift, so that tables and vocabularies stay in memory."""
_MOST_DIGITS = 12
SHOWN = 3
"""Values of a table that stand in words."""


class FrozenDict(dict[Any, Any]):
    """A dict that cannot be changed, can be hashed and pickled, and equals any dict of its content."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a task cannot be changed; make a new one with dataclasses.replace(task, ...)")

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


def token(value: Any, what: str) -> int:
    """A token id as a plain int.

    Raises:
        ValueError: it is none; the message begins with `what`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST or isinstance(value, bool):
        raise ValueError(f"{what} must be a token id 0..{LARGEST}, got {shown(value)}")
    return number


def tabulate(function: Any, inputs: Sequence[int], what: str) -> int | FrozenDict:
    """A shift as it is; a table or a callable as a table over `inputs`.

    Raises:
        ValueError: neither of the three, a table with gaps, or values that are no integers.
    """
    if isinstance(function, int | np.integer) and not isinstance(function, bool):
        if abs(function) > LARGEST:
            raise ValueError(f"{what} must be a shift of at most {LARGEST}, got {shown(function)}")
        return int(function)
    if isinstance(function, Mapping):
        missing = [x for x in inputs if x not in function]
        if missing:
            raise ValueError(
                f"the table of {what} lacks {len(missing)} reachable values, the first is {missing[0]}; "
                "add them or narrow the key range"
            )
        values: list[Any] = [function[x] for x in inputs]
    elif callable(function):
        values = [function(x) for x in inputs]
    else:
        raise ValueError(f"{what} must be a shift, a table or a callable, got {shown(function)}")
    try:
        table = FrozenDict(zip(inputs, map(operator.index, values), strict=True))
        if max(table.values(), default=0) > LARGEST or min(table.values(), default=0) < -LARGEST:
            raise ValueError(
                f"{what} must give values up to {LARGEST}, got {shown(max(table.values(), key=abs))}"
            )
        return table
    except TypeError:
        odd = next(y for y in values if not hasattr(y, "__index__"))
        raise ValueError(f"{what} must give integers, got {shown(odd)}; round inside the function") from None


def formula(function: AnchorFunction) -> str:
    """A tabulated function in words; of a table the first values.

    >>> formula(5), formula({20: 20, 21: 23}), formula({x: 2 * x for x in range(9)})
    ('x+5', 'a table of 2 values (20 -> 20, 21 -> 23)', 'a table of 9 values (0 -> 0, 1 -> 2, 2 -> 4, ..)')
    """
    if isinstance(function, int):
        return f"x{function:+d}"
    assert isinstance(function, Mapping)
    shown = [f"{x} -> {y}" for x, y in itertools.islice(function.items(), SHOWN)]
    more = [".."] if len(function) > SHOWN else []
    return f"a table of {len(function)} values ({', '.join(shown + more)})"


def as_json(function: AnchorFunction) -> int | dict[str, int]:
    """A tabulated function as JSON data."""
    if isinstance(function, int):
        return function
    assert isinstance(function, Mapping)
    return {str(x): y for x, y in function.items()}


def read_pair(text: str) -> Pair:
    """A pair written as in "3,4"."""
    return tuple(short_integer(part) for part in text.split(","))


def short_integer(text: str | int) -> int:
    """An integer of a few digits; among those of many, a file could choose some that all have one hash.

    Raises:
        ValueError: it is none.
    """
    if len(str(text)) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def read_functions(values: Any, what: str, read_key: Callable[[str], Any]) -> dict[Any, Any]:
    """Undo the string keys that JSON and TOML need; leave other keys alone."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} must be a table, got {shown(values)}")
    try:
        return {
            (read_key(key) if isinstance(key, str) else key): _read_table(function)
            for key, function in values.items()
        }
    except (TypeError, ValueError):
        raise ValueError(
            f"{what} must have integer keys such as 3 or '3,4', got {shown(list(values))}"
        ) from None


def _read_table(function: Any) -> Any:
    if not isinstance(function, Mapping):
        return function
    return {short_integer(x): y for x, y in function.items()}
