"""A task's fields as JSON or TOML data, whose keys are texts, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorlens.safe import shown
from anchorlens.tasks.two_anchor.anchor_functions import AnchorFunction, Pair

_MOST_DIGITS = 12


def to_data(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an AnchorTask, JSON-ready."""
    values = {**fields, "anchors": {str(a): _as_json(f) for a, f in fields["anchors"].items()}}
    if fields["unseen_pairs"] is not None:
        values["unseen_pairs"] = [list(pair) for pair in fields["unseen_pairs"]]
    if fields["overrides"] is not None:
        values["overrides"] = {",".join(map(str, p)): _as_json(f) for p, f in fields["overrides"].items()}
    return values


def from_data(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an AnchorTask from JSON or TOML data; those that are no text or table stay as they are.

    Raises:
        ValueError: keys that are no integers, or no list of pairs.
    """
    fields = dict(values)
    if "anchors" in fields:
        fields["anchors"] = _read_functions(fields["anchors"], "anchors", _short_integer)
    if fields.get("overrides") is not None:
        fields["overrides"] = _read_functions(fields["overrides"], "overrides", _read_pair)
    if (unseen := fields.get("unseen_pairs")) is not None:
        if isinstance(unseen, str) or not isinstance(unseen, Sequence):
            raise ValueError(f"unseen_pairs must be a list of pairs, got {shown(unseen)}")
        fields["unseen_pairs"] = [_read_pair(pair) if isinstance(pair, str) else pair for pair in unseen]
    return fields


def _as_json(function: AnchorFunction) -> int | dict[str, int]:
    """A tabulated function as JSON data."""
    if isinstance(function, int):
        return function
    assert isinstance(function, Mapping)
    return {str(x): y for x, y in function.items()}


def _read_pair(text: str) -> Pair:
    """A pair written as in "3,4"."""
    return tuple(_short_integer(part) for part in text.split(","))


def _short_integer(text: str | int) -> int:
    """An integer of a few digits; among those of many, a file could choose some that all have one hash.

    Raises:
        ValueError: it is none.
    """
    if len(str(text)) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def _read_functions(values: Any, what: str, read_key: Callable[[str], Any]) -> dict[Any, Any]:
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
    return {_short_integer(x): y for x, y in function.items()}
