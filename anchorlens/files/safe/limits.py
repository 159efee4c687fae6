"""Refuse what is too large, and what is too costly unless the user allows it."""

from __future__ import annotations

import math
import os

from anchorlens.texts import safe_repr

FACTOR = "ANCHORLENS_COST_FACTOR"
"""Environment variable with the factor by which the allowed cost is multiplied."""


def cost_factor() -> float:
    """The factor on the allowed cost: the value of the environment variable, or 1.

    Raises:
        ValueError: its value is not a number above 0.
    """
    text = os.environ.get(FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ValueError(
            f"{FACTOR} must be a number above 0, got {safe_repr(text)}; set it to 1, or unset it"
        )
    return factor


def check_at_most(most: int, n: int, what: str, unit: str) -> None:
    """Refuse more of something than any legitimate file has.

    Args:
        most: number that is allowed.
        n: number that was found.
        what: what has them, for the message.
        unit: what is counted.

    Raises:
        ValueError: `n` is more than `most`.
    """
    if n > most:
        raise ValueError(f"unsafe: {what} has more than {most:,} {unit}; refused")


def check_affordable(needed: float, allowed: float, words: str) -> None:
    """Refuse a cost that is more than allowed, and say how to allow it.

    Args:
        needed: the cost.
        allowed: the allowed cost, already multiplied by `cost_factor`.
        words: both in words, for the message.

    Raises:
        ValueError: `needed` is more than `allowed`.
    """
    if needed > allowed:
        factor = math.ceil(10 * cost_factor() * needed / allowed) / 10
        raise ValueError(f"too costly: {words}; if you trust it, set {FACTOR}={factor:g} in the environment")
