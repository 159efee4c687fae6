"""Fourier measures of logits over all pairs of a cyclic group, and of an embedding of its elements.

The group has n elements, and its elements are in the order of exponents: the answer to (i, j) is
(i + j) mod n. A cube of logits [first, second, answer] has this order on its three axes. `in_order` gives the
order of the numbers below p for each operation that has one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

LEAST_SHARE = 0.01
MOST_KEYS = 10
"""The least fraction of the variance that a key frequency explains, and the largest number of key
frequencies. With all frequencies, even a lookup table seems to generalise."""
_CONSTANT = 1e-5
"""The relative spread below which correct logits count as equal: float32 rounds off about 1e-7."""


class Order(NamedTuple):
    """The numbers below p, in the order of the exponents of a cyclic group."""

    first: Int[np.ndarray, " n"]
    """The number a of each exponent."""
    second: Int[np.ndarray, " n"]
    """The number b of each exponent."""
    answer: Int[np.ndarray, " n"]
    """The answer of each exponent: `answer[(i + j) % n]` belongs to `first[i]` and `second[j]`."""


def in_order(operation: str, p: int) -> Order | None:
    """Return the order in which an operation modulo p is an addition of exponents, or `None`.

    For addition and subtraction, the order contains all p numbers. For multiplication and division modulo a
    prime p > 2, the order contains the p - 1 nonzero numbers, sorted by discrete logarithm. For an operation
    without this order, the function returns `None`.

    >>> in_order("multiply", 5).first.tolist(), in_order("divide", 5).second.tolist()
    ([1, 2, 4, 3], [1, 3, 4, 2])
    >>> in_order("x2xyy2", 5) is None
    True
    """
    if operation in ("add", "subtract"):
        numbers = np.arange(p)
        return Order(numbers, numbers if operation == "add" else -numbers % p, numbers)
    generator = _generator(p) if operation in ("multiply", "divide") else None
    if generator is None:
        return None
    powers = np.array([pow(generator, exponent, p) for exponent in range(p - 1)])
    return Order(powers, powers if operation == "multiply" else np.roll(powers[::-1], 1), powers)


def _generator(p: int) -> int | None:
    """Find the smallest number whose powers are 1..p-1 modulo p; `None` if p is 2 or not prime.

    >>> [_generator(p) for p in (2, 7, 9, 59, 113)]
    [None, 3, None, 2, 3]
    """
    for g in range(2, p):
        power, order = g, 1
        while power > 1:
            power, order = power * g % p, order + 1
        if power == 1 and order == p - 1:
            return g
    return None


def centred(logits: Float[np.ndarray, "*pairs answer"]) -> Float[np.ndarray, "*pairs answer"]:
    """Subtract the mean over pairs and the mean over answers from logits."""
    over_answers = logits - logits.mean(axis=-1, keepdims=True)
    return over_answers - over_answers.mean(axis=tuple(range(logits.ndim - 1)))


def answer_share(logits: Float[np.ndarray, "pair answer"], answers: Int[np.ndarray, " pair"]) -> float:
    """Compute the fraction of the centred logits' variance that lies between groups of equal answers.

    The fraction is 1 if a pair's logits depend only on its answer, and NaN if the logits do not vary. The
    measure does not require a group or frequencies.

    >>> round(answer_share(np.array([[1.0, 0], [1, 0], [0, 1], [1, 0]]), np.array([0, 0, 1, 1])), 3)
    0.333
    """
    values = centred(logits)
    of_class = np.zeros((answers.max() + 1, values.shape[1]))
    np.add.at(of_class, answers, values)
    n_pairs = np.bincount(answers, minlength=len(of_class))
    between = (np.square(of_class).sum(axis=1) / np.maximum(n_pairs, 1)).sum()
    return _ratio(between, np.square(values).sum())


def frequency_shares(cube: Float[np.ndarray, "first second answer"]) -> Float[np.ndarray, " frequency"]:
    """Compute the fraction of the centred logits' variance that each cos(w_k (i + j - c)) explains.

    The frequency k goes from 1 to n // 2.

    The kernel gives the mean centred logit at each distance d of an answer from the correct answer. The
    cosine coefficients of the kernel give the fractions without a further copy of the logits. The fractions
    refer to the variance of all centred logits, and sum to at most 1. The fractions are NaN if the logits do
    not vary.
    """
    n = len(cube)
    values = centred(cube)
    distance = (np.arange(n)[:, None] - np.arange(n)) % n
    kernel = np.bincount(distance.ravel(), weights=_by_answer(values).ravel(), minlength=n) / n
    coefficients = np.fft.rfft(kernel).real[1:] / n  # mean of kernel and cosine
    squares = np.where(2 * np.arange(1, n // 2 + 1) == n, 1.0, 0.5)  # mean square of each cosine
    total = np.square(values).mean()
    return np.square(coefficients) / squares / total if total else np.full(n // 2, np.nan)


def key_frequencies(shares: Float[np.ndarray, " frequency"]) -> Int[np.ndarray, " key"]:
    """Return at most ten frequencies with shares of at least 0.01, the largest share first.

    >>> key_frequencies(np.array([0.02, 0.009, 0.9])).tolist()
    [3, 1]
    """
    largest = np.argsort(-shares, kind="stable")[:MOST_KEYS]
    return largest[shares[largest] >= LEAST_SHARE] + 1


def participation(shares: Float[np.ndarray, " frequency"]) -> float:
    """Compute the effective number of frequencies, 1 / (sum of squares of the shares).

    The function first scales the shares to a sum of 1.

    >>> participation(np.array([0.2, 0.2, 0, 0, 0.2, 0.2]))
    4.0
    """
    return _ratio(float(shares.sum() ** 2), float(np.square(shares).sum()))


class Losses(NamedTuple):
    """The mean cross-entropies of the full, restricted and excluded logits over all pairs, in nats."""

    whole: float
    """The loss of the logits."""
    restricted: float
    """The loss of the key frequencies alone."""
    excluded: float
    """The loss of the logits without the key frequencies."""


def losses(cube: Float[np.ndarray, "first second answer"], keys: Int[np.ndarray, " key"]) -> Losses:
    """Compute the mean cross-entropies of the full, restricted and excluded logits over all pairs.

    The function projects each answer's logits onto cos(w_k (i + j)) and sin(w_k (i + j)) for the key
    frequencies k. The restricted logits are each answer's mean over pairs plus the projections. The excluded
    logits are the full logits minus the projections.
    """
    n = len(cube)
    mean = cube.mean(axis=(0, 1))
    spectrum = np.fft.rfft(_by_answer(cube - mean), axis=0)
    others = np.setdiff1d(np.arange(len(spectrum)), keys)
    spectrum[others] = 0
    projected = np.fft.irfft(spectrum, n=n, axis=0)  # [i + j, answer]
    answers = _answers(n)
    return Losses(
        cross_entropy(cube, answers),
        cross_entropy(mean + projected, np.arange(n)),
        cross_entropy(cube - projected[answers], answers),
    )


def cross_entropy(logits: Float[np.ndarray, "*pairs answer"], answers: Int[np.ndarray, "*pairs"]) -> float:
    """Compute the mean cross-entropy of the answers, in nats."""
    right = np.take_along_axis(logits, answers[..., None], axis=-1)[..., 0]
    return float((logsumexp(logits, axis=-1) - right).mean())


def right_logits(cube: Float[np.ndarray, "first second answer"]) -> Float[np.ndarray, "difference second"]:
    """Return the correct answers' logits, with a row for each difference i - j and a column for each j."""
    second = np.arange(len(cube))
    first = _answers(len(cube))  # row i - j, column j
    return cube[first, second, (first + second) % len(cube)]


def by_sum(right: Float[np.ndarray, "difference second"]) -> Float[np.ndarray, "difference sum"]:
    """Arrange the correct answers' logits with a column for each sum i + j.

    In a group of even order, a column stands for two neighbouring sums.

    >>> by_sum(np.array([[0.0, 2, 4], [1, 3, 5], [2, 4, 6]])).tolist()
    [[0.0, 4.0, 2.0], [3.0, 1.0, 5.0], [6.0, 4.0, 2.0]]
    """
    n = len(right)
    width = 2 - n % 2
    difference, second = np.indices(right.shape)
    columns = (difference + 2 * second) % n // width
    found = np.zeros((n, n // width))
    np.add.at(found, (difference, columns), right / width)
    return found


def distance_irrelevance(right: Float[np.ndarray, "diff second"]) -> float:
    """Compute the spread of the correct answer's logit at one difference i - j, relative to all pairs.

    For each difference, the function computes the standard deviation of the logit over the sums. The result
    is the mean of these standard deviations, divided by the standard deviation of all logits. The result is 1
    if the logit does not depend on the difference, and also if all logits are equal. The result is 0 if the
    logit depends only on the difference.
    """
    spread = right.std()
    if spread <= _CONSTANT * np.abs(right).mean():
        return 1.0
    return float(right.std(axis=1).mean() / spread)


def power(rows: Float[np.ndarray, "element feature"]) -> Float[np.ndarray, " frequency"]:
    """Compute the squared length of the rows' cosine and sine components at each frequency 1..n // 2."""
    n = len(rows)
    squared = np.square(np.abs(np.fft.rfft(rows, axis=0))).sum(axis=1)[1:]
    return squared * np.where(2 * np.arange(1, n // 2 + 1) == n, 1.0, 2.0) / n


def gini(values: Float[np.ndarray, " value"]) -> float:
    """Compute the Gini coefficient of nonnegative values.

    The coefficient is 0 if all values are equal, and near 1 if one value has nearly the whole sum.

    >>> gini(np.array([1.0, 1, 1])), gini(np.array([0, 0, 0, 1.0]))
    (0.0, 0.75)
    """
    n = len(values)
    ranks = 2 * np.arange(1, n + 1) - n - 1
    return _ratio(float(ranks @ np.sort(values)), float(n * values.sum()))


def _answers(n: int) -> Int[np.ndarray, "first second"]:
    return (np.arange(n)[:, None] + np.arange(n)) % n


def _by_answer(cube: Float[np.ndarray, "first second answer"]) -> Float[np.ndarray, "right answer"]:
    """Compute the mean over the n pairs of each correct answer."""
    n = len(cube)
    second = np.arange(n)
    return np.stack([cube[(right - second) % n, second].mean(axis=0) for right in range(n)])


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
