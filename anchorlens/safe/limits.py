"""How much is too much: one way to refuse a size, and one to refuse a cost that its reader may allow."""

from __future__ import annotations

import math
import os

from anchorlens.safe.texts import safe_repr

FACTOR = "ANCHORLENS_COST_FACTOR"
"""Environment variable: so many times as much may be taken."""


def cost_factor() -> float:
    """How many times as much may be taken: what `FACTOR` says, or 1.

    Raises:
        ValueError: it says no number above 0.
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
    """Refuse what has more of something than any honest file has.

    Args:
        most: that it may have.
        n: that it has.
        what: what has them, for the message.
        unit: what is counted.

    Raises:
        ValueError: it has more.
    """
    if n > most:
        raise ValueError(f"unsafe: {what} has more than {most:,} {unit}; refused")


def check_affordable(needed: float, allowed: float, words: str) -> None:
    """Refuse what takes more than is allowed, and say how to allow it.

    Args:
        needed: what it takes.
        allowed: what it may take, multiplied by `cost_factor` already.
        words: both of them, for the message.

    Raises:
        ValueError: it takes more.
    """
    if needed > allowed:
        factor = math.ceil(10 * cost_factor() * needed / allowed) / 10
        raise ValueError(f"too costly: {words}; if you trust it, set {FACTOR}={factor:g} in the environment")
