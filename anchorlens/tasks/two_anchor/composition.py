"""Targets of all chains and keys at once: anchors tabulated where a task reaches, and composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.tasks.two_anchor.anchor_functions import AnchorFunction, FrozenDict, tabulate

if TYPE_CHECKING:
    from jaxtyping import Int


def tabulated(
    anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> dict[int, AnchorFunction]:
    """Shifts as they are; tables and callables as tables over what chains of them reach from the keys.

    Args:
        anchors: token -> function.
        keys: ascending.
        chain_length: anchors that follow each other.

    Raises:
        ValueError: what is no function, a table with gaps, or values that are no integers.
    """
    shifts: dict[int, int] = {}
    tables: dict[int, dict[int, int]] = {a: {} for a in anchors}
    reached = keys
    for place in range(chain_length):
        inputs, found = reached.tolist(), []
        for anchor, function in anchors.items():
            table = tabulate(function, inputs, f"anchor {anchor}")
            if isinstance(table, int):
                shifts[anchor] = table
                found.append(reached + table)
            else:
                tables[anchor].update(table)
                found.append(np.fromiter(table.values(), np.int64, len(table)))
        if place < chain_length - 1:
            reached = np.unique(np.concatenate(found))
    return {a: shifts[a] if a in shifts else _ascending(tables.pop(a)) for a in anchors}


def _ascending(table: dict[int, int]) -> FrozenDict:
    inputs = sorted(table)
    return FrozenDict(zip(inputs, map(table.__getitem__, inputs), strict=True))


def composed(
    anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> Int[np.ndarray, "chain key"]:
    """f(x; a1, ..) = g(..g(x; a1)..) of every chain, in the order of `itertools.product`, and every key.

    Args:
        anchors: token -> function, `tabulated`.
        keys: ascending.
        chain_length: anchors of a chain.
    """
    columns = [_columns(function) for function in anchors.values()]
    values = np.asarray(keys, dtype=np.int64)[None]  # [chains so far, key]
    for _ in range(chain_length):
        values = np.stack([_applied(column, values) for column in columns], axis=1)
        values = values.reshape(-1, len(keys))
    return values


def values_of(function: AnchorFunction, keys: Sequence[int]) -> Int[np.ndarray, " key"]:
    """What a tabulated function gives for each key."""
    if isinstance(function, int):
        return np.asarray(keys, dtype=np.int64) + function
    assert isinstance(function, Mapping)
    return np.fromiter(map(function.__getitem__, keys), np.int64, len(keys))


_Columns = int | tuple[np.ndarray, np.ndarray]
"""A shift, or a table's inputs, ascending, and its outputs."""


def _columns(function: AnchorFunction) -> _Columns:
    if isinstance(function, int):
        return function
    assert isinstance(function, Mapping)
    inputs, outputs = (
        np.fromiter(each, np.int64, len(function)) for each in (function.keys(), function.values())
    )
    return inputs, outputs


def _applied(columns: _Columns, values: np.ndarray) -> np.ndarray:
    if isinstance(columns, int):
        return values + columns
    inputs, outputs = columns
    return outputs[np.searchsorted(inputs, values)]
