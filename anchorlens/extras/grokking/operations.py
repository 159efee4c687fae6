"""Operations of modular arithmetic and of groups: the answer to every pair of numbers below p.

Source: the operations of Power et al., arXiv 2201.02177.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from anchorlens.randomness import generator
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Int

_Modular = Literal["add", "subtract", "multiply", "divide", "x2xyy2", "x3xy"]
Operation = Literal[_Modular, "permutations", "permutations_reversed", "table", "random"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
"""The names of the operations."""
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
"""A map from each operation to its sign between two numbers; the others have only a name."""
_PERMUTATIONS = {math.factorial(n): n for n in (3, 4, 5)}
"""A map from the number of permutations to the number of permuted things."""


def answers(operation: str, p: int, seed: int = 0, table: str = "") -> Int[np.ndarray, " pair"]:
    """Return the answer to every pair (a, b) of numbers below p.

    Args:
        operation: one of `OPERATIONS`.
        p: the modulus or the order of the group, at least 2.
        seed: the seed of the answers for the operation `random`.
        table: the answers for the operation `table`, p rows of p numbers. Spaces or commas separate numbers,
            and semicolons or line ends separate rows.

    Returns:
        The answers, [p * p], where the answer to (a, b) has the index a * p + b. An answer is 0..p-1, or -1
        for division by zero.

    Raises:
        ValueError: If the operation does not support p, or the table does not have p rows of p numbers below
            p. For `divide`, p must be a prime. For `permutations`, p must be 6, 24 or 120.

    >>> answers("subtract", 3).reshape(3, 3)
    array([[0, 2, 1],
           [1, 0, 2],
           [2, 1, 0]])
    """
    a, b = np.divmod(np.arange(p * p), p)
    if operation == "table":
        return _table(table, p)
    if operation == "permutations":
        return _permutations(p)
    if operation == "permutations_reversed":
        return _permutations(p).reshape(p, p).T.ravel()
    if operation == "random":
        return generator(seed, "data", 3).integers(p, size=p * p)
    if operation == "divide":
        if not is_prime(p):
            raise ValueError(
                f"modulus must be prime for the operation `divide`, got {p}. Use a prime number, for "
                "example 59."
            )
        inverse = np.array([0, *(pow(x, -1, p) for x in range(1, p))])
        return np.where(b == 0, -1, a * inverse[b] % p)
    values = {
        "add": a + b,
        "subtract": a - b,
        "multiply": a * b,
        "x2xyy2": a * a + a * b + b * b,
        "x3xy": a**3 + a * b,
    }
    return values[operation] % p


def is_prime(n: int) -> bool:
    """Check whether an integer above 1 is a prime."""
    return all(n % k for k in range(2, math.isqrt(n) + 1))


def _permutations(p: int) -> Int[np.ndarray, " pair"]:
    """Compute the composition in the symmetric group: first b, then a, in lexicographic order."""
    if p not in _PERMUTATIONS:
        raise ValueError(
            f"modulus must be 6, 24 or 120 for permutations, got {p}. Use the number of "
            "permutations of 3, 4 or 5 objects."
        )
    of = np.array(list(itertools.permutations(range(_PERMUTATIONS[p]))))
    composed = of[:, of]  # [a, b, thing] = a[b[thing]]
    digits = len(of[0]) ** np.arange(len(of[0]))
    return np.argsort(of @ digits)[np.searchsorted(np.sort(of @ digits), composed @ digits)].ravel()


def _table(text: str, p: int) -> Int[np.ndarray, " pair"]:
    rows = [row.replace(",", " ").split() for row in text.replace("\n", ";").split(";") if row.strip(" ,")]
    numbers = [number for row in rows for number in row]
    known = {str(number): number for number in range(p)}
    if [len(row) for row in rows] != [p] * p or not known.keys() >= set(numbers):
        lengths = " or ".join(map(str, sorted({len(row) for row in rows})[:3]))
        got = f"{len(rows)} rows of {lengths or 0} numbers"
        strange = next((number for number in numbers if number not in known), None)
        got += "" if strange is None else f" with {safe_repr(strange)}"
        raise ValueError(
            f"`table` must be {p} rows of {p} numbers below {p}, got {got}. Separate the rows of the "
            "group's table by semicolons, and set modulus to the number of rows."
        )
    return np.array([known[number] for number in numbers])
