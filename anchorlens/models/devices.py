"""Devices: how their names are resolved, how a lack of memory is recognised, and what memory glibc keeps."""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import TYPE_CHECKING

from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    import torch


_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_MMAP_MAX = -4
"""Numbers that glibc's malloc.h gives to its limits."""


def choose_device(name: str | torch.device) -> torch.device:
    """Return the torch device with this name.

    `auto` means CUDA if CUDA is available, and otherwise the CPU.

    `mps` gives a warning, because we could not test anchorlens on MPS.

    Raises:
        ValueError: If the device is not available.
    """
    import torch  # imported late: the functions below do without it

    name = str(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # refused below
    if (device.index or 0) >= counts.get(device.type, 0):
        found = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        raise ValueError(
            f"device must be auto, cpu, cuda, cuda:N or mps, got {safe_repr(name)}, but torch found {found}. "
            "Use auto or cpu"
        )
    if device.type == "mps":
        warnings.warn("device 'mps': anchorlens could not be tested on it; compare with cpu", stacklevel=2)
    return device


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an error means that Python or torch ran out of memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def glibc(function: str, *arguments: int) -> None:
    """Call a function of the C library for memory, or do nothing if the library lacks the function."""
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), function, lambda *_: 0)(*arguments)


def limit_freed_memory(*, keep_all: bool) -> None:
    """Let glibc keep all freed memory for reuse, or at most 64 MiB in blocks below 32 MiB.

    The latter limits are the largest that glibc itself chooses. Other C libraries are left unchanged.
    """
    glibc("mallopt", _MMAP_MAX, 0 if keep_all else 65_536)
    glibc("mallopt", _TRIM_THRESHOLD, 2**31 - 1 if keep_all else 64 * 2**20)
    if not keep_all:
        glibc("mallopt", _MMAP_THRESHOLD, 32 * 2**20)


def give_back_freed_memory() -> None:
    """Return freed memory to the system if the C library (glibc) keeps the memory for later arrays."""
    glibc("malloc_trim", 0)
