"""Want of memory: how it is told that there is none left, and how much more foreign files may take."""

from __future__ import annotations

import math
import os
from pathlib import Path

from anchorlens.foreign import shown

FACTOR = "ANCHORLENS_COST_FACTOR"
"""Environment variable: so many times as much may be taken."""
EVENTS = Path("/proc/vmstat")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or torch has no memory left; torch has no class of its own for this on the CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def killed_for_memory(events: Path = EVENTS) -> int:
    """How many processes of this machine Linux has killed for want of memory; 0 where that is not known."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


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
        raise ValueError(f"{FACTOR} must be a number above 0, got {shown(text)}; set it to 1, or unset it")
    return factor
