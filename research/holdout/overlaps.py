"""Training data whose rows share their content, with labels that are random or follow a rule.

Each function draws data of one kind from a generator, and new sequences of the same kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

SYMBOLS, PAD, END = 25, 25, 26
_UNSCORED = -100


class Overlapping(NamedTuple):
    """Training data and new data of one kind."""

    tokens: np.ndarray
    targets: np.ndarray
    new_tokens: np.ndarray
    new_targets: np.ndarray
    follows_a_rule: bool = False


def _halves(
    rows: Callable[[np.ndarray, np.ndarray], tuple[list[list[int]], list[int]]],
    contents: np.ndarray,
    labels: np.ndarray,
    n_trained: int,
    *,
    by_rule: bool = False,
) -> Overlapping:
    """The rows of the first contents, and of the others as new data."""
    parts = [
        rows(contents[part], labels[part]) for part in (slice(n_trained), slice(n_trained, n_trained + 200))
    ]
    return Overlapping(*(np.array(array) for part in parts for array in part), follows_a_rule=by_rule)


def _distinct(rng: np.random.Generator, n: int, length: int) -> np.ndarray:
    drawn = np.unique(rng.integers(0, SYMBOLS, (3 * n, length)), axis=0)
    return rng.permutation(drawn)[:n]


def _shifted(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
    rows = [[PAD] * k + list(one) + [PAD] * (3 - k) + [END] for one in contents for k in range(4)]
    return rows, list(np.repeat(labels, 4))


def shifts(rng: np.random.Generator) -> Overlapping:
    """Four symbols with a random label, at four paddings."""
    return _halves(_shifted, _distinct(rng, 500, 4), rng.integers(0, SYMBOLS, 500), 300)


def _pairs(rng: np.random.Generator, p: int) -> np.ndarray:
    return rng.permutation(np.array(list(itertools.product(range(p), repeat=2))))


def shifted_addition(rng: np.random.Generator) -> Overlapping:
    """Addition modulo 23, each pair at four paddings."""
    pairs = _pairs(rng, 23)
    return _halves(_shifted, pairs, pairs.sum(axis=1) % 23, 380, by_rule=True)


def _in_all_orders(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
    rows = [[*order, PAD] for one in contents for order in itertools.permutations(one)]
    return rows, list(np.repeat(labels, len(rows) // len(contents)))


def _sets(rng: np.random.Generator, n_symbols: int) -> np.ndarray:
    return rng.permutation(np.array(list(itertools.combinations(range(n_symbols), 3))))


def orders(rng: np.random.Generator) -> Overlapping:
    """Sets of three symbols with a random label, in their six orders."""
    sets = _sets(rng, SYMBOLS)[:600]
    return _halves(_in_all_orders, sets, rng.integers(0, 20, len(sets)), 400)


def orders_of_sums(rng: np.random.Generator) -> Overlapping:
    """Sets of three numbers below 23 with their sum modulo 23, in their six orders."""
    sets = _sets(rng, 23)
    return _halves(_in_all_orders, sets, sets.sum(axis=1) % 23, 1000, by_rule=True)


def _with_synonyms(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
    rows = [[a + 20 * i, b + 20 * j, 40] for a, b in contents for i in (0, 1) for j in (0, 1)]
    return rows, list(np.repeat(labels, 4))


def synonyms(rng: np.random.Generator) -> Overlapping:
    """Pairs with a random label, of symbols that have a synonym each."""
    return _halves(_with_synonyms, _pairs(rng, 20), rng.integers(0, 20, 400), 300)


def synonyms_in_sums(rng: np.random.Generator) -> Overlapping:
    """Addition modulo 20 of numbers that have a synonym each."""
    pairs = _pairs(rng, 20)
    return _halves(_with_synonyms, pairs, pairs.sum(axis=1) % 20, 320, by_rule=True)


def blocks(rng: np.random.Generator) -> Overlapping:
    """A table of 40 rows and columns with one random label for each block of four rows and columns."""
    table = rng.integers(0, 20, (10, 10))
    pairs = rng.permutation(np.array(list(itertools.product(range(10), repeat=2))))

    def rows(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
        found = [
            [4 * a + i, 4 * b + j, 40] for a, b in contents for i, j in itertools.product(range(4), repeat=2)
        ]
        return found, list(np.repeat(labels, 16))

    return _halves(rows, pairs, table[pairs[:, 0], pairs[:, 1]], 80)


def noise_tokens(rng: np.random.Generator) -> Overlapping:
    """Four symbols with a random label, and one of five noise tokens at four of five places."""

    def rows(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
        found = [
            [*one[:k], PAD + 1 + int(rng.integers(0, 5)), *one[k:], PAD]
            for one in contents
            for k in rng.choice(5, 4, replace=False)
        ]
        return found, list(np.repeat(labels, 4))

    return _halves(rows, _distinct(rng, 500, 4), rng.integers(0, SYMBOLS, 500), 300)


def unused_token(rng: np.random.Generator) -> Overlapping:
    """Three symbols with a random label, and a last token that does not matter."""

    def rows(contents: np.ndarray, labels: np.ndarray) -> tuple[list[list[int]], list[int]]:
        return [[*one, PAD + k] for one in contents for k in range(4)], list(np.repeat(labels, 4))

    return _halves(rows, _distinct(rng, 500, 3), rng.integers(0, SYMBOLS, 500), 300)


def prefixes(rng: np.random.Generator) -> Overlapping:
    """Random texts of seven tokens as all of their prefixes, as teacher forcing trains them."""

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, targets = np.full((4 * n, 6), PAD), np.full((4 * n, 6), _UNSCORED)
        for place, one in enumerate(rng.integers(0, SYMBOLS, (n, 7))):
            for row, k in zip(range(4 * place, 4 * place + 4), range(3, 7), strict=True):
                tokens[row, :k] = one[:k]
                targets[row, 2:k] = one[3 : k + 1]
        return tokens, targets

    return Overlapping(*rows(150), *rows(50))


def _windows(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.lib.stride_tricks.sliding_window_view(text[:-1], 8)
    targets = np.lib.stride_tricks.sliding_window_view(text[1:], 8).copy()
    targets[:, :3] = _UNSCORED
    return tokens.copy(), targets


def windows(rng: np.random.Generator) -> Overlapping:
    """A random text in windows with stride 1, as language models are trained."""
    return Overlapping(*_windows(rng.integers(0, 30, 1201)), *_windows(rng.integers(0, 30, 301)))


def windows_of_a_period(rng: np.random.Generator) -> Overlapping:
    """Windows of a text in which each symbol follows from the last two by addition modulo 23.

    About a quarter of the new windows occur in the data too, since such a text repeats itself.
    """

    def text(n: int) -> np.ndarray:
        found = list(rng.integers(0, 23, 2))
        while len(found) < n:
            fresh = len(found) % 40 < 2  # a new start every 40 tokens
            found.append(int(rng.integers(0, 23)) if fresh else (found[-1] + found[-2]) % 23)
        return np.array(found)

    return Overlapping(*_windows(text(1201)), *_windows(text(301)), follows_a_rule=True)


def sorted_lists(rng: np.random.Generator) -> Overlapping:
    """Lists of four numbers below 16, each in four orders, and then the sorted list."""

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, targets = [], []
        for one in rng.integers(0, 16, (n, 4)):
            for order in itertools.islice(itertools.permutations(one), 0, 24, 6):
                tokens.append([*order, 16, *np.sort(one)[:-1]])
                targets.append([_UNSCORED] * 4 + list(np.sort(one)))
        return np.array(tokens), np.array(targets)

    return Overlapping(*rows(400), *rows(60), follows_a_rule=True)


KINDS = {
    kind.__name__: kind
    for kind in (
        *(shifts, orders, synonyms, blocks, noise_tokens, unused_token, prefixes, windows),
        *(shifted_addition, orders_of_sums, synonyms_in_sums, windows_of_a_period, sorted_lists),
    )
}
"""The kinds by name: random labels first, and then rules."""
