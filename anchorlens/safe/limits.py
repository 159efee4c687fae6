"""Refuse files that are too large, and files that are too costly unless the user allows them."""

from __future__ import annotations

import math
import os

from anchorlens.texts import safe_repr

FACTOR = "ANCHORLENS_COST_FACTOR"
"""The environment variable with the factor by which the allowed cost is multiplied."""


def cost_factor() -> float:
    """Return the factor for the allowed cost from `ANCHORLENS_COST_FACTOR` in the environment. Default: 1.

    Raises:
        ValueError: If the value is not a number above 0.
    """
    text = os.environ.get(FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ValueError(
            f"{FACTOR} must be a number above 0, got {safe_repr(text)}. Set {FACTOR} to 1, or unset {FACTOR}"
        )
    return factor


def check_at_most(most: int, n: int, what: str, unit: str) -> None:
    """Refuse a count that is larger than in any legitimate file.

    Args:
        most: the largest allowed number.
        n: the number that was found.
        what: the name of the object for the message.
        unit: the name of the counted items.

    Raises:
        ValueError: If `n` is more than `most`.
    """
    if n > most:
        raise ValueError(
            f"unsafe: {what} must have at most {most:,} {unit}, got at least {n:,}. anchorlens refused the "
            "file. Use another copy of the file"
        )


def check_affordable(needed: float, allowed: float, words: str) -> None:
    """Refuse a cost that is more than allowed, and explain how to allow this cost.

    Args:
        needed: the cost.
        allowed: the allowed cost, already multiplied by `cost_factor`.
        words: the description of both costs, for the message.

    Raises:
        ValueError: If `needed` is more than `allowed`.
    """
    if needed > allowed:
        factor = math.ceil(10 * cost_factor() * needed / allowed) / 10
        raise ValueError(
            f"too costly: {words}. If you trust the input, set {FACTOR}={factor:g} in the environment"
        )
