"""Devices: how their names are resolved, how a lack of memory is recognised, and what memory glibc keeps."""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import TYPE_CHECKING

from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    import torch

DEVICES = "auto, cpu, cuda, cuda:N or mps"
"""The names of devices, in words."""


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
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be {DEVICES}, got {safe_repr(name)}. Use auto or cpu") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device must be {DEVICES}, got {safe_repr(name)}. Use auto or cpu")
    missing = ""
    if device.type == "cuda" and not torch.cuda.is_available():
        missing = "torch found no CUDA GPU. Use auto or cpu"
    elif device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        missing = f"the number of CUDA GPUs is {torch.cuda.device_count()}. Use a lower number"
    elif device.type == "mps" and not torch.backends.mps.is_available():
        missing = "torch found no MPS. Use auto or cpu"
    if missing:
        raise ValueError(f"device must be available, got {safe_repr(name)}, but {missing}")
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


def give_back_freed_memory() -> None:
    """Return freed memory to the system if the C library (glibc) keeps the memory for later arrays."""
    glibc("malloc_trim", 0)
