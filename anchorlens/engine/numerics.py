"""The global numeric settings of a training run, restored when it ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anchorlens.models.devices import give_back_freed_memory, limit_freed_memory

_MEMORY: Any = torch.utils.deterministic  # a module with a property, which type checkers cannot see


@contextlib.contextmanager
def numeric_settings(
    device: torch.device, threads: int | None = None, *, tf32: bool = False
) -> Iterator[None]:
    """Change global numeric settings so that a run is fast, and bit-reproducible on the CPU.

    The calling thread and later OpenMP threads flush denormal floats to zero. Large initial weights produce
    denormals. A CPU takes four times as long with denormals as without denormals. On the CPU, torch uses its
    deterministic algorithms. Without deterministic algorithms, the timing of the threads may change the order
    in which a gradient is summed. On the CPU, the process also keeps the memory that an update frees for the
    next update. Gradients are on and autocast is off, regardless of the caller's settings. The function
    restores the settings of the process when the last concurrent run ends.

    Args:
        device: the device that the run computes on.
        threads: the number of CPU threads. Default: torch's own choice.
        tf32: whether CUDA may round the operands of float32 matrix products to TF32.

    Raises:
        ValueError: If another run is active in this process with another type of device or another `tf32`.
    """
    flushed, had_threads = _flushes_denormals(), torch.get_num_threads()
    with (
        _of_the_process(device.type == "cpu", tf32),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        try:
            torch.set_flush_denormal(True)
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_flush_denormal(flushed)
            torch.set_num_threads(had_threads)


_LOCK = threading.Lock()
_RUNS: list[tuple[tuple[bool, bool], contextlib.ExitStack]] = []
"""For each active run, the settings it asked for, and a stack that restores the caller's settings (empty for
all runs but the first)."""


@contextlib.contextmanager
def _of_the_process(deterministic: bool, tf32: bool) -> Iterator[None]:
    """Apply the settings that all threads share; the last run to end restores the former settings."""
    asked = (deterministic, tf32)
    with _LOCK:
        if _RUNS and _RUNS[0][0] != asked:
            raise ValueError(
                "concurrent runs in one process must use the same numeric settings, got "
                f"{_in_words(*asked)} during a run with {_in_words(*_RUNS[0][0])}. Use one process for each "
                "run"
            )
        _RUNS.append((asked, _changed(*asked) if not _RUNS else contextlib.ExitStack()))
    try:
        yield
    finally:
        with _LOCK:
            _, first = _RUNS[0]
            _RUNS.pop()
            if not _RUNS:
                first.close()


def _in_words(deterministic: bool, tf32: bool) -> str:
    return f"{'the CPU' if deterministic else 'CUDA'} and {'TF32' if tf32 else 'float32'} products"


def _changed(deterministic: bool, tf32: bool) -> contextlib.ExitStack:
    """Make the shared settings; closing the returned stack restores the old ones."""
    undo = contextlib.ExitStack()
    _precision(undo, tf32)
    if deterministic:
        # not use_deterministic_algorithms, which imports torch's compiler (2 s) to set an option of it
        undo.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
        torch.set_deterministic_debug_mode("error")
        undo.callback(setattr, _MEMORY, "fill_uninitialized_memory", _MEMORY.fill_uninitialized_memory)
        _MEMORY.fill_uninitialized_memory = False  # costs time, finds no error here
        undo.callback(give_back_freed_memory)
        undo.callback(limit_freed_memory, keep_all=False)
        limit_freed_memory(keep_all=True)
    return undo


def _precision(undo: contextlib.ExitStack, tf32: bool) -> None:
    """Set the precision of float32 and bfloat16 products and convolutions; `undo` restores what was set.

    torch has an old and, since 2.9, a new switch for each. The old switches cannot be read after a caller has
    used the new ones; they are then restored to torch's defaults.
    """
    backends: Any = torch.backends
    owners = (
        backends.cuda.matmul,
        getattr(backends.mkldnn, "matmul", None),
        getattr(backends.cudnn, "conv", None),
    )
    new: list[Any] = [owner for owner in owners if hasattr(owner, "fp32_precision")]
    for owner in new:
        undo.callback(setattr, owner, "fp32_precision", owner.fp32_precision)
    undo.callback(torch.set_float32_matmul_precision, _read(torch.get_float32_matmul_precision, "highest"))
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    undo.callback(setattr, backends.cudnn, "allow_tf32", _read(lambda: backends.cudnn.allow_tf32, True))
    backends.cudnn.allow_tf32 = tf32
    for owner in new:
        owner.fp32_precision = "tf32" if tf32 else "ieee"
    products = backends.cuda.matmul
    before = products.allow_bf16_reduced_precision_reduction
    undo.callback(setattr, products, "allow_bf16_reduced_precision_reduction", before)
    products.allow_bf16_reduced_precision_reduction = False


def _read(switch: Callable[[], Any], otherwise: object) -> Any:
    try:
        return switch()
    except RuntimeError:
        return otherwise


def _flushes_denormals() -> bool:
    """Return whether this thread flushes denormals, measured by a product with a denormal."""
    return (torch.tensor(1e-310, dtype=torch.float64, device="cpu") * 1).item() == 0.0
