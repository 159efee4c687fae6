"""Whether numbers are in the papers' order, counted over pairs: the headline numbers of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

DEAD_ZONE = 0.01
"""Two numbers that differ by no more than this share of the larger one are the same."""


class Order(NamedTuple):
    """How a number changes from a smaller x to a larger one, over all pairs of which both are known."""

    rising: int
    """Pairs in which it is larger at the larger x."""
    equal: int
    """Pairs in which it is the same."""
    falling: int
    """Pairs in which it is smaller at the larger x."""

    @property
    def n_pairs(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def not_falling(self) -> float | None:
        """Share of the pairs that do not fall, 0..1; None without a pair."""
        return (self.rising + self.equal) / self.n_pairs if self.n_pairs else None

    @property
    def shuffled(self) -> float | None:
        """What `not_falling` would be, in the mean, with the same numbers at x in random order."""
        return (self.equal + (self.rising + self.falling) / 2) / self.n_pairs if self.n_pairs else None

    @property
    def rising_share(self) -> float | None:
        """Share that rises of the pairs that differ, 0..1: .5 by chance; None where none differ."""
        differ = self.rising + self.falling
        return self.rising / differ if differ else None

    def described(self) -> dict[str, Any]:
        """JSON-ready: the counts and the shares."""
        return {
            **self._asdict(),
            "n_pairs": self.n_pairs,
            "share": self.not_falling,
            "share_shuffled": self.shuffled,
            "rising_share": self.rising_share,
        }


def compare(before: float, after: float) -> int:
    """1 where a number rises, -1 where it falls, 0 where it does not leave the dead zone.

    >>> compare(22.1, 22.2), compare(22.1, 21.0), compare(1, 2)
    (0, -1, 1)
    """
    if abs(after - before) <= DEAD_ZONE * max(abs(before), abs(after)):
        return 0
    return 1 if after > before else -1


def order(values: Sequence[float | None]) -> Order:
    """Compare every value with every later one; None is unknown and compared with nothing.

    >>> order([1, None, 2, 2, 1])  # 1-2, 1-2 rise; 1-1, 2-2 are equal; 2-1, 2-1 fall
    Order(rising=2, equal=2, falling=2)
    """
    known = [value for value in values if value is not None]
    signs = [compare(a, b) for a, b in combinations(known, 2)]
    return Order(signs.count(1), signs.count(0), signs.count(-1))


def together(orders: Iterable[Order]) -> Order:
    """The pairs of several sequences, added up; pairs between two sequences are none.

    >>> together([order([1, 2]), order([5, 3])])
    Order(rising=1, equal=0, falling=1)
    """
    counts = [sum(column) for column in zip(Order(0, 0, 0), *orders, strict=True)]
    return Order(*counts)


def share_above(ones: Sequence[float], others: Sequence[float]) -> float | None:
    """Share of the pairs (one, other) in which the one is larger, 0..1, ties counting half; .5 by chance.

    >>> share_above([2, 3], [1, 2])  # 2-1, 3-1, 3-2 are larger, 2-2 is a tie
    0.875
    """
    pairs = [(one, other) for one in ones for other in others]
    if not pairs:
        return None
    return sum((one > other) + (one == other) / 2 for one, other in pairs) / len(pairs)


def share_above_by_seed(
    ones: Mapping[int, Sequence[float]], others: Mapping[int, Sequence[float]]
) -> dict[int, float | None]:
    """`share_above` of each seed by itself: seed -> its values, on either side.

    >>> share_above_by_seed({0: [2], 1: [2]}, {0: [1], 1: [3]})
    {0: 1.0, 1: 0.0}
    """
    return {seed: share_above(values, others.get(seed, [])) for seed, values in ones.items()}
