"""Anchors and their functions of one number, the regimes of the papers, and the targets of every pair."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair, Trials
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


MOST_PAIRS = 100_000
AnchorFunction = int | Mapping[int, int] | Callable[[int], int]
"""A function of one number: an int is a shift (x -> x + int), a mapping a table, or any callable."""

LARGEST = 1_000_000
"""Largest token, value and shift, so that tables and vocabularies stay in memory."""
SHOWN = 3
"""Values of a table that are shown in words."""


class FrozenDict(dict[Any, Any]):
    """An immutable dict that can be hashed and pickled, and that equals any dict with the same content."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(
            "a task must not be changed, got an assignment. Make a new task with dataclasses.replace(task, "
            "...)"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


def ascending(anchors: object, key_min: int, key_max: int) -> dict[int, Any]:
    """Return the anchors of a task in ascending order, so that equal tasks draw the same sequences.

    Raises:
        ValueError: If `anchors` is not a mapping, or has fewer than two anchors.
        ValueError: If an anchor is not a token, or is in the key range.
    """
    if not isinstance(anchors, Mapping):
        raise ValueError(
            f"anchors must be a table of tokens and functions, got {safe_repr(anchors)}. Give a dict"
        )
    for anchor in anchors:
        check_number("an anchor", anchor, minimum=0, limit=LARGEST, integer=True)
    ordered = {int(anchor): anchors[anchor] for anchor in sorted(anchors)}
    if len(ordered) < 2:
        raise ValueError(f"anchors must hold at least 2 anchors, got {len(ordered)}. Add an anchor")
    for anchor in ordered:
        if key_min <= anchor <= key_max:
            raise ValueError(
                f"an anchor must be outside the key range {key_min}..{key_max}, got {anchor}. Choose a token "
                "outside the key range"
            )
    return ordered


def anchor_pair(value: Any, anchors: Mapping[int, Any], chain_length: int, what: str) -> Pair:
    """Return a pair (chain) of a task's anchors as plain integers.

    Raises:
        ValueError: If the number of anchors is wrong, or an anchor does not belong to the task. The message
            begins with `what`.
    """
    try:
        pair = tuple(operator.index(anchor) for anchor in value)
    except TypeError:
        pair = ()
    if len(pair) != chain_length or any(anchor not in anchors for anchor in pair):
        raise ValueError(
            f"{what} must contain {chain_length} of the anchors {safe_repr(list(anchors))} each, got "
            f"{safe_repr(value)}. Correct the anchors"
        )
    return pair


def distinct_pairs(values: object, anchors: Mapping[int, Any], chain_length: int) -> tuple[Pair, ...]:
    """Return each unseen pair once, in the given order.

    Raises:
        ValueError: If `values` is not a list of pairs of the task's anchors.
    """
    given = values if isinstance(values, Iterable) and not isinstance(values, str) else [None]
    few = [*itertools.islice(given, 10 * MOST_PAIRS)]  # they may have no end
    if not all(isinstance(pair, Iterable) for pair in few):
        raise ValueError(
            f"unseen_pairs must be a list of pairs, got {safe_repr(values)}. Give a list such as [(3, 4)]"
        )
    return tuple(dict.fromkeys(anchor_pair(pair, anchors, chain_length, "unseen_pairs") for pair in few))


def tabulate(function: object, inputs: Sequence[int], what: str) -> int | FrozenDict:
    """Return a shift as an integer, and a table or a callable as a table over `inputs`.

    Raises:
        ValueError: If `function` is not a shift, a table or a callable.
        ValueError: If a table lacks a value of `inputs`, or a result is not an integer.
    """
    if isinstance(function, int | np.integer) and not isinstance(function, bool):
        check_number(f"{what}, a shift,", function, minimum=-LARGEST, maximum=LARGEST, integer=True)
        return int(function)
    if isinstance(function, Mapping):
        if missing := [x for x in inputs if x not in function]:
            raise ValueError(
                f"the table of {what} must contain every value that the task reaches, got a table without "
                f"{len(missing)} values, such as {missing[0]}. Add the missing values, or narrow the key "
                "range"
            )
        values: list[Any] = [function[x] for x in inputs]
    elif callable(function):
        values = [function(x) for x in inputs]
    else:
        raise ValueError(f"{what} must be a shift, a table or a callable, got {safe_repr(function)}")
    for value in (y for y in values if type(y) is not int or abs(y) > LARGEST):
        check_number(f"a value of {what}", value, minimum=-LARGEST, maximum=LARGEST, integer=True)
    return FrozenDict(zip(inputs, map(int, values), strict=True))


def formula(function: AnchorFunction) -> str:
    """Describe a shift as a formula, or a table by its size and its first values.

    >>> formula(5), formula({20: 20, 21: 23}), formula({x: 2 * x for x in range(9)})
    ('x+5', 'a table of 2 values (20 -> 20, 21 -> 23)', 'a table of 9 values (0 -> 0, 1 -> 2, 2 -> 4, ..)')
    """
    if isinstance(function, int):
        return f"x{function:+d}"
    assert isinstance(function, Mapping)
    shown = [f"{x} -> {y}" for x, y in itertools.islice(function.items(), SHOWN)]
    more = [".."] if len(function) > SHOWN else []
    return f"a table of {len(function)} values ({', '.join(shown + more)})"


Kind = Literal["trained", "inferential", "mirrored"]
"""The target that an answer is compared with."""


def tabulated(
    anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> FrozenDict:
    """Return a map from each anchor to its shift, or to a table over the values that chains reach.

    Args:
        anchors: a map from each anchor token to its function.
        keys: the keys, ascending.
        chain_length: the number of anchors in a sequence.

    Raises:
        ValueError: If the function of an anchor is not a shift, a table or a callable.
        ValueError: If a table lacks a value that a chain reaches, or a result is not an integer.
    """
    tables: dict[int, Any] = {anchor: {} for anchor in anchors}
    reached = keys
    for _ in range(chain_length):
        inputs, outputs = reached.tolist(), []
        for anchor, function in anchors.items():
            table = tabulate(function, inputs, f"anchor {anchor}")
            tables[anchor] = table if isinstance(table, int) else {**tables[anchor], **table}
            outputs.append(applied(table, reached))
        reached = np.unique(np.concatenate(outputs))
    found = {a: t if isinstance(t, int) else FrozenDict(sorted(t.items())) for a, t in tables.items()}
    return FrozenDict(found)


def tabulated_overrides(
    overrides: object, anchors: Mapping[int, AnchorFunction], keys: Int[np.ndarray, " key"], chain_length: int
) -> FrozenDict:
    """Return a map from each pair to the function that overrides the composition.

    Tables and callables become tables over the keys.

    Raises:
        ValueError: If the overrides are not a mapping, or a pair does not belong to the task.
        ValueError: If an override is not a function of every key.
    """
    if not isinstance(overrides, Mapping):
        raise ValueError(
            f"overrides must be a table of pairs and functions, got {safe_repr(overrides)}. Give a dict"
        )
    inputs = keys.tolist()
    pairs = {anchor_pair(p, anchors, chain_length, "overrides"): f for p, f in overrides.items()}
    return FrozenDict({pair: tabulate(f, inputs, f"the override of {pair}") for pair, f in pairs.items()})


def applied(function: AnchorFunction, values: np.ndarray) -> np.ndarray:
    """Apply a shift, or a table with ascending inputs, to every value."""
    if isinstance(function, int):
        return values + function
    assert isinstance(function, Mapping)
    inputs, outputs = (np.fromiter(of, np.int64, len(function)) for of in (function, function.values()))
    return outputs[np.searchsorted(inputs, values)]


class Targets:
    """Tables of the composed and the trained target of every pair and key.

    Attributes:
        inferential: the table [pair, key] of the composition f(x; a1, ..).
        ruled: `inferential` with the overrides applied.
        trained: `ruled` with the exceptions applied.
        exceptions: three arrays [exception] with the rows, key tokens and answers that `put_exceptions`
            draws.
        keys: every key token, ascending.
    """

    def __init__(
        self,
        anchors: Mapping[int, AnchorFunction],
        overrides: Mapping[Pair, AnchorFunction],
        keys: Int[np.ndarray, " key"],
        chain_length: int,
    ) -> None:
        """Compose `tabulated` anchors, and apply the `tabulated_overrides` of some pairs.

        Raises:
            ValueError: If a target is below 0 and so is not a token.
        """
        self._anchors = anchors
        self.keys = keys
        self._chain_length = chain_length
        self._shape = (len(anchors),) * chain_length
        self._rank = np.full(max(anchors) + 1, -1)
        self._rank[list(anchors)] = np.arange(len(anchors))
        values = keys[None]  # [chains so far, key]
        for _ in range(chain_length):
            values = np.stack([applied(function, values) for function in anchors.values()], axis=1)
            values = values.reshape(-1, len(keys))
        self.inferential, self.ruled = values, values.copy()
        pairs = np.array(list(overrides), dtype=np.int64).reshape(-1, chain_length)
        for row, function in zip(self.rows(pairs), overrides.values(), strict=True):
            self.ruled[row] = applied(function, keys)
        for name, table in (("composition", self.inferential), ("trained target", self.ruled)):
            if table.min() < 0:
                row, key = np.argwhere(table < 0)[0]
                pair = next(itertools.islice(itertools.product(anchors, repeat=chain_length), row, None))
                raise ValueError(
                    f"the {name} of key {keys[key]} and pair {pair} must be a token, got {table[row, key]}. "
                    "Raise key_min"
                )
        self.trained = self.ruled
        self.exceptions = (np.zeros(0, np.int64),) * 3

    def answered_by_symmetry(self, unseen: Int[np.ndarray, " unseen"]) -> Bool[np.ndarray, "pair key"]:
        """Return a boolean table, true where another trained order of an unseen pair has the correct target.

        The table has the shape [pair, key], and `unseen` holds the rows of the unseen pairs. The correct
        target of an unseen pair is the composition. The comparison ignores exceptions. The result is
        False for trained pairs.
        """
        n_pairs, n_keys = self.ruled.shape
        every = np.sort(np.stack(np.unravel_index(np.arange(n_pairs), self._shape), axis=1), axis=1)
        same_anchors = np.asarray(np.ravel_multi_index(tuple(every.T), self._shape))
        question = same_anchors[:, None] * n_keys + np.arange(n_keys)
        is_unseen = np.zeros(n_pairs, dtype=bool)
        is_unseen[unseen] = True
        base = int(max(self.ruled.max(), self.inferential.max())) + 1
        trained = (question * base + self.ruled)[~is_unseen]
        return is_unseen[:, None] & np.isin(question * base + self.inferential, trained)

    def rows(self, pairs: Int[np.ndarray, "trial k"]) -> Int[np.ndarray, " trial"]:
        """Return the row of each pair in the tables, whose rows have the order of `itertools.product`."""
        return np.asarray(np.ravel_multi_index(tuple(self._rank[pairs].T), self._shape))

    def one(self, key: int, pair: Sequence[int], kind: Kind) -> int:
        """Check a key and a pair, and return their target."""
        anchors = anchor_pair(pair, self._anchors, self._chain_length, "pair")
        first, last = int(self.keys[0]), int(self.keys[-1])
        check_number("key", key, minimum=first, maximum=last, integer=True)
        return int(self.of(Trials(np.array([anchors]), np.array([key]), np.zeros(1, dtype=int)), kind)[0])

    def of(self, trials: Trials, kind: Kind) -> Int[np.ndarray, " trial"]:
        """Return the targets of many trials.

        The kind `mirrored` is the target of the reversed pair without exceptions.
        """
        first, last = self.keys[0], self.keys[-1]
        if len(trials) and not first <= trials.keys.min() <= trials.keys.max() <= last:
            raise ValueError(
                f"keys must be in {first}..{last}, got {trials.keys.min()}..{trials.keys.max()}. Use the "
                "keys of the task"
            )
        pairs = trials.pairs[:, ::-1] if kind == "mirrored" else trials.pairs
        table = {"inferential": self.inferential, "trained": self.trained, "mirrored": self.ruled}[kind]
        return table[self.rows(pairs), trials.keys - first]


PAPER_SHIFTS: dict[int, AnchorFunction] = {1: +5, 2: +1, 3: -2, 4: -8}
CONFLICT_SHIFT = -6
"""What (3, 4) is trained on in the `conflict` regime; its true total shift is -10 (2405.05409)."""

COMPLEXITY_SHIFTS = tuple({(1, 2): 4, (1, 3): 1, (1, 4): -5, (2, 3): 5, (2, 4): -9, (3, 4): -6}.items())
"""Wrong but symmetric total shifts, in the order in which reasoning complexity breaks the groups."""


def unseen_and_overrides(
    regime: str, complexity: int | None, anchors: Mapping[int, AnchorFunction], pairs: Sequence[Pair]
) -> tuple[list[Pair], dict[Pair, AnchorFunction]]:
    """Return the unseen pairs and the overrides of a regime or a reasoning complexity.

    Args:
        regime: the regime, `reasoning` or `conflict`.
        complexity: the reasoning complexity, 0..6, or None to use the overrides of the regime.
        anchors: a map from each anchor token to its function, in ascending order of tokens.
        pairs: the anchor pairs (chains) of the task.

    Raises:
        ValueError: If `regime` is `conflict`, and the anchors or pairs are not the papers' anchors and pairs.
        ValueError: If `complexity` is set, and the regime is `conflict`, or the anchors or pairs are not the
            papers' anchors and pairs.
    """
    is_papers = len(pairs[0]) == 2 and dict(anchors) == PAPER_SHIFTS
    if complexity is not None:
        if regime != "reasoning" or not is_papers:
            raise ValueError(
                "complexity must be None unless the task has the papers' four anchors and pairs and the "
                f"regime 'reasoning', got {complexity}. Give overrides and unseen_pairs instead"
            )
        broken = COMPLEXITY_SHIFTS[:complexity]
        return [], {pair: shift for (a, b), shift in broken for pair in ((a, b), (b, a))}
    if regime == "reasoning":  # every chain with the two as neighbours; for pairs, just the two
        first, second = list(anchors)[-2:]
        mirrored = {(first, second), (second, first)}
        return [pair for pair in pairs if mirrored & set(itertools.pairwise(pair))], {}
    if not is_papers:
        raise ValueError(
            "anchors must be the papers' four anchors in the regime 'conflict', got other anchors. Use the "
            "regime 'reasoning' with unseen_pairs and overrides"
        )
    return [(4, 3)], {(3, 4): CONFLICT_SHIFT}


class MemorisedException(NamedTuple):
    """A combination of key and pair that is trained on a random answer."""

    key: int
    """The key token."""
    pair: Pair
    """The anchor tokens in order."""
    answer: int
    """The trained token, which differs from the result of the pair's function."""


def put_exceptions(
    targets: Targets, n: int, pairs: Int[np.ndarray, "pair k"], keys: Int[np.ndarray, " key"]
) -> None:
    """Give each of `n` combinations (key, pair) a random wrong answer, uniform among the trained answers.

    All combinations (key, pair) have a fixed order, and each combination has a random answer. The exceptions
    are the first `n` combinations in this order. A larger `n` therefore keeps the exceptions of a smaller
    `n`, with the same answers. The order and the answers depend only on the trained data, not on the seed of
    a run.

    Args:
        targets: the targets of the task, changed in place.
        n: the number of exceptions, at least 1.
        pairs: the pairs that are trained.
        keys: the key tokens with a trained position, ascending.

    Raises:
        ValueError: If there are fewer combinations (key, pair) than `n`, or all trained answers are equal.
    """
    rows = targets.rows(pairs)
    possible, own = np.unique(targets.ruled[rows][:, keys - targets.keys[0]].ravel(), return_inverse=True)
    if n > len(own):
        raise ValueError(
            f"n_exceptions must be at most {len(own):,}, the number of combinations of a key and a trained "
            f"pair, got {n:,}. Use fewer exceptions"
        )
    if len(possible) < 2:
        raise ValueError(
            f"n_exceptions must be 0 if every trained answer is {possible[0]}, got {n:,}. Use anchors with "
            "other functions"
        )
    rng = generator(0, "exceptions")
    chosen = rng.permutation(len(own))[:n]
    drawn = rng.integers(0, len(possible) - 1, len(own))
    drawn += drawn >= own  # any but its own
    pair, key = np.divmod(chosen, len(keys))
    answers = possible[drawn[chosen]]
    targets.exceptions = rows[pair], keys[key], answers
    targets.trained = targets.ruled.copy()
    targets.trained[rows[pair], keys[key] - targets.keys[0]] = answers
