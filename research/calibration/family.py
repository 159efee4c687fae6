"""Two-anchor tasks drawn at random: the family that the mechanism verdict is for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anchorlens import AnchorTask
from anchorlens.tasks.two_anchor.sequences import Pair

Kind = Literal["shifts", "multiplication", "affine", "permutations"]
"""What the functions of the anchors are; all but shifts map the keys onto themselves."""
COMMUTE: Mapping[Kind, bool] = {
    "shifts": True,
    "multiplication": True,
    "affine": False,
    "permutations": False,
}
"""Whether the order of two anchors makes no difference to the composition."""

KEY_MIN = 40
"""Smallest key: above the anchors, and far enough from 0 for two shifts of -15."""
MOST_SHIFT = 15
MOST_OF_TABLES = 90
"""Keys of functions that are no shifts: of more, small models do not learn the tables in time."""
PRIMES = tuple(p for p in range(41, 200) if all(p % q for q in range(2, 15)))
"""Numbers of keys of the functions mod p."""


@dataclass(frozen=True)
class Draw:
    """What a task is drawn from; every field by itself."""

    kinds: Sequence[Kind] = ("shifts", "shifts", "multiplication", "permutations")
    anchors: Sequence[int] = (3, 4, 4, 5, 5, 6)
    keys: tuple[int, int] = (40, 200)
    """Fewest and most; small numbers more often."""
    lengths: Sequence[int] = (6, 6, 7, 7, 8, 9, 10, 12, 16)
    regimes: Sequence[str] = ("reasoning", "reasoning", "conflict")


def drawn(draw: Draw, random: np.random.Generator) -> tuple[Kind, AnchorTask]:
    """A task, and what its functions are.

    In `reasoning` one or two unordered pairs of anchors are left out of training in both orders; where the
    order matters, one to four may be left out in one order alone. (Of functions that commute, an unseen pair
    whose mirror is trained could be answered by symmetry.) In `conflict` one or two are left out in one
    order, and the other is trained on a function that is not the composition.
    """
    kind = draw.kinds[int(random.integers(len(draw.kinds)))]
    n = draw.anchors[int(random.integers(len(draw.anchors)))]
    fewest, most = draw.keys
    most = most if kind == "shifts" else min(most, MOST_OF_TABLES)
    n_keys = int(fewest * (most / fewest) ** (random.uniform() ** 2))
    if kind in ("multiplication", "affine"):
        n_keys = min(PRIMES, key=lambda p: abs(p - n_keys))
    keys = np.arange(KEY_MIN, KEY_MIN + n_keys)
    anchors = dict(enumerate(_functions(kind, n, keys, random), start=1))
    regime = draw.regimes[int(random.integers(len(draw.regimes)))]
    unordered = list(itertools.combinations(anchors, 2))
    both = regime == "reasoning" and (COMMUTE[kind] or bool(random.integers(2)))
    most = 4 if regime == "reasoning" and not both else 2
    n_unseen = int(random.integers(1, min(most, len(unordered) - 1) + 1))
    chosen = [unordered[k] for k in random.permutation(len(unordered))[:n_unseen]]
    first = [pair if random.integers(2) else pair[::-1] for pair in chosen]
    unseen = [*first, *(pair[::-1] for pair in first)] if both else first
    overrides: dict[Pair, Mapping[int, int] | int] | None = None
    if regime == "conflict":
        overrides = {pair[::-1]: _other(kind, anchors, pair[::-1], keys, random) for pair in first}
    seq_len = draw.lengths[int(random.integers(len(draw.lengths)))]
    task = AnchorTask(
        anchors=anchors,
        key_min=KEY_MIN,
        key_max=int(keys[-1]),
        seq_len=seq_len,
        unseen_pairs=unseen,
        overrides=overrides,
    )
    return kind, task


def _functions(
    kind: Kind, n: int, keys: np.ndarray, random: np.random.Generator
) -> list[int | dict[int, int]]:
    """`n` different functions of a kind."""
    p = len(keys)
    if kind == "shifts":
        return (random.permutation(2 * MOST_SHIFT + 1)[:n] - MOST_SHIFT).tolist()
    if kind == "permutations":
        return [_table(keys, random.permutation(p)) for _ in range(n)]
    factors = 2 + random.permutation(p - 2)[:n]
    terms = random.integers(0, p, n) if kind == "affine" else np.zeros(n, int)
    return [
        _table(keys, (factor * np.arange(p) + term) % p) for factor, term in zip(factors, terms, strict=True)
    ]


def _table(keys: np.ndarray, values: np.ndarray) -> dict[int, int]:
    return dict(zip(keys.tolist(), (KEY_MIN + values).tolist(), strict=True))


def _other(
    kind: Kind,
    anchors: Mapping[int, int | Mapping[int, int]],
    pair: Pair,
    keys: np.ndarray,
    random: np.random.Generator,
) -> int | dict[int, int]:
    """A function of the kind that is not the composition of a pair."""
    composed = AnchorTask(anchors=anchors, key_min=KEY_MIN, key_max=int(keys[-1]), unseen_pairs=[])
    right = [composed.target(int(key), pair) for key in keys]
    while True:
        if kind == "shifts":
            step = int(random.integers(1, 9)) * (1 if random.integers(2) else -1)
            return right[0] - int(keys[0]) + step
        (other,) = _functions(kind, 1, keys, random)
        assert isinstance(other, dict)
        if np.mean([other[int(key)] == value for key, value in zip(keys, right, strict=True)]) < 0.1:
            return other
