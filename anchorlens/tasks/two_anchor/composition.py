"""Targets of all chains and keys at once: anchors tabulated where a task reaches, and composed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.safe import shown
from anchorlens.tasks.two_anchor.anchor_functions import (
    AnchorFunction,
    FrozenDict,
    Pair,
    anchor_pair,
    tabulate,
)
from anchorlens.tasks.two_anchor.sequences import Trials

if TYPE_CHECKING:
    from jaxtyping import Int


Kind = Literal["trained", "inferential", "mirrored"]
"""What an answer is compared with."""


def tabulated(
    anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> FrozenDict:
    """Shifts as they are; tables and callables as tables over what chains of them reach from the keys.

    Args:
        anchors: token -> function.
        keys: ascending.
        chain_length: anchors that follow each other.

    Raises:
        ValueError: what is no function, a table with gaps, or values that are no integers.
    """
    tables: dict[int, Any] = {anchor: {} for anchor in anchors}
    reached = keys
    for _ in range(chain_length):
        inputs, found = reached.tolist(), []
        for anchor, function in anchors.items():
            table = tabulate(function, inputs, f"anchor {anchor}")
            tables[anchor] = table if isinstance(table, int) else {**tables[anchor], **table}
            found.append(applied(table, reached))
        reached = np.unique(np.concatenate(found))
    return FrozenDict(
        {a: t if isinstance(t, int) else FrozenDict(sorted(t.items())) for a, t in tables.items()}
    )


def tabulated_overrides(
    overrides: Any, anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> FrozenDict:
    """Pair -> its function, tables and callables as tables over the keys.

    Raises:
        ValueError: no mapping, a pair that the task does not have, or what is no function of every key.
    """
    if not isinstance(overrides, Mapping):
        raise ValueError(f"overrides must map pairs to functions, got {shown(overrides)}")
    inputs = keys.tolist()
    pairs = {anchor_pair(p, anchors, chain_length, "overrides"): f for p, f in overrides.items()}
    return FrozenDict({pair: tabulate(f, inputs, f"the override of {pair}") for pair, f in pairs.items()})


def applied(function: AnchorFunction, values: np.ndarray) -> np.ndarray:
    """What a shift, or a table with ascending inputs, gives for each of the values."""
    if isinstance(function, int):
        return values + function
    assert isinstance(function, Mapping)
    inputs, outputs = (np.fromiter(of, np.int64, len(function)) for of in (function, function.values()))
    return outputs[np.searchsorted(inputs, values)]


class Targets:
    """The answers to every pair and key: the composition, and what is trained.

    Attributes:
        inferential: f(x; a1, ..) of every pair and key, [pair, key].
        trained: the same but for the overrides.
    """

    def __init__(
        self,
        anchors: Mapping[int, AnchorFunction],
        overrides: Mapping[Pair, AnchorFunction],
        keys: Int[np.ndarray, " key"],
        chain_length: int,
    ) -> None:
        """Compose `tabulated` anchors, and put `tabulated_overrides` of some pairs over the composition.

        Raises:
            ValueError: an answer is below 0, so no token.
        """
        self._anchors, self._keys, self._chain_length = anchors, keys, chain_length
        self._rank = np.full(max(anchors) + 1, -1)
        self._rank[list(anchors)] = np.arange(len(anchors))
        values = keys[None]  # [chains so far, key]
        for _ in range(chain_length):
            values = np.stack([applied(function, values) for function in anchors.values()], axis=1)
            values = values.reshape(-1, len(keys))
        self.inferential, self.trained = values, values.copy()
        pairs = np.array(list(overrides), dtype=np.int64).reshape(-1, chain_length)
        for row, function in zip(self.rows(pairs), overrides.values(), strict=True):
            self.trained[row] = applied(function, keys)
        for name, table in (("composition", self.inferential), ("trained target", self.trained)):
            if table.min() < 0:
                row, key = np.argwhere(table < 0)[0]
                pair = next(itertools.islice(itertools.product(anchors, repeat=chain_length), row, None))
                raise ValueError(
                    f"the {name} of key {keys[key]} and pair {pair} is {table[row, key]}, no token; "
                    "raise key_min"
                )

    def rows(self, pairs: Int[np.ndarray, "trial k"]) -> Int[np.ndarray, " trial"]:
        """Where each pair stands in the tables, in the order of `itertools.product`."""
        index = np.zeros(len(pairs), dtype=np.int64)
        for anchor in pairs.T:
            index = index * len(self._anchors) + self._rank[anchor]
        return index

    def one(self, key: int, pair: Sequence[int], kind: Kind) -> int:
        """The answer to one key and pair, which are checked."""
        anchors = anchor_pair(pair, self._anchors, self._chain_length, "pair")
        first, last = int(self._keys[0]), int(self._keys[-1])
        check_number("key", key, minimum=first, maximum=last, integer=True)
        return int(self.of(Trials(np.array([anchors]), np.array([key]), np.zeros(1)), kind)[0])

    def of(self, trials: Trials, kind: Kind) -> Int[np.ndarray, " trial"]:
        """The answers to many; `mirrored` are the trained ones of the pairs in reverse."""
        first, last = self._keys[0], self._keys[-1]
        if len(trials) and not first <= trials.keys.min() <= trials.keys.max() <= last:
            raise ValueError(
                f"keys must lie in {first}..{last}, got {trials.keys.min()}..{trials.keys.max()}"
            )
        pairs = trials.pairs[:, ::-1] if kind == "mirrored" else trials.pairs
        table = self.inferential if kind == "inferential" else self.trained
        return table[self.rows(pairs), trials.keys - first]
