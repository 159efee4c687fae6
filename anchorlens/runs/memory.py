"""Want of memory: how Python, torch and the system say that there is none left."""

from __future__ import annotations

from pathlib import Path

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
