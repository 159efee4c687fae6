"""Give a user's function copies of models, say what it altered in them, and restore global settings."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from anchorlens.texts import few

T = TypeVar("T")


@contextlib.contextmanager
def assert_unmodified(name: str, *models: object) -> Iterator[list[Any]]:
    """Give the `with` block copies of models, and raise an error that names what the block altered in them.

    The function compares the weights, buffers and hooks of each copy with the model. The function restores
    the gradient mode, torch's defaults and hooks of all modules, NumPy's handling of errors and the random
    state.

    Args:
        name: the name of the function that is called in the block.
        *models: the models given to the function. Only torch modules are copied. A module that Python cannot
            copy is given itself.

    Raises:
        ValueError: If the block altered a model. The function does not catch errors that the block raises.
    """
    copies = [copied(model) if isinstance(model, nn.Module) else model for model in models]
    with settings_kept(), _random_state_kept():
        yield copies
    changed: dict[str, list[str]] = {}
    for model, own in zip(models, copies, strict=True):
        before, now = _parts(model), _parts(own)
        for what, path in before | now:
            if not _same(before.get((what, path)), now.get((what, path))):
                changed.setdefault(what, []).append(path)
    if changed:
        what = "; ".join(f"{what} ({few(paths)})" for what, paths in changed.items())
        raise ValueError(
            f"{name} must not change the model, got changes of {what}. Your model is unchanged. Let the "
            "probe change copy.deepcopy(model), and remove its hooks"
        )


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Restore the global settings of torch and NumPy that affect later measurements, such as gradients."""
    with contextlib.ExitStack() as undo:
        for get, set_to in _SETTINGS:
            undo.callback(set_to, get())
        yield


def copied(value: T) -> T:
    """Return a deep copy of a model or task, or the object itself if Python cannot copy it."""
    try:
        return copy.deepcopy(value)
    except (RuntimeError, TypeError):  # it holds a lock, or the result of a computation with gradients
        return value


def fingerprint(weights: Iterable[Tensor]) -> str:
    """Return a hash that is equal for equal weights."""
    parts = (one.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy() for one in weights)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def repeated(fingerprints: Mapping[int, str]) -> Iterator[str]:
    """Yield a note if checkpoints have the weights of earlier checkpoints.

    Args:
        fingerprints: a map from steps to the `fingerprint` of the weights.
    """
    first: dict[str, int] = {}
    again = [str(step) for step, own in fingerprints.items() if first.setdefault(own, step) != step]
    if again:
        yield (
            f"{len(again)} of {len(fingerprints)} checkpoints have the weights of an earlier checkpoint "
            f"(steps {few(again)}), as if kept without a copy. Keep copy.deepcopy(model.state_dict())"
        )


def _parts(model: object) -> dict[tuple[str, str], Any]:
    """Return the weights, buffers and numbers of hooks of a model by what they are and their path."""
    if not isinstance(model, nn.Module):
        return {}
    parts: dict[tuple[str, str], Any] = {("weights", path): each for path, each in model.named_parameters()}
    parts |= {("buffers", path): each for path, each in model.named_buffers()}
    for path, module in model.named_modules():
        hooks = [len(each) for kind, each in vars(module).items() if kind.endswith("_hooks")]
        parts["hooks", path] = sum(hooks)
    return parts


def _same(before: object, now: object) -> bool:
    """Check whether two parts are equal; NaN equals NaN."""
    if not (isinstance(before, Tensor) and isinstance(now, Tensor)):
        return before == now
    if (before.dtype, before.device, before.shape) != (now.dtype, now.device, now.shape):
        return False
    return before.is_meta or torch.allclose(before, now, rtol=0, atol=0, equal_nan=True)


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Let the block draw and seed as it likes, and restore the generators of torch, NumPy and Python."""
    of_numpy: Any = np.random.get_state(legacy=False)
    of_python = random.getstate()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)


_GLOBAL_HOOKS = [
    hooks
    for name, hooks in vars(nn.modules.module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
]


def _set_global_hooks(before: list[dict[int, Any]]) -> None:
    for hooks, own in zip(_GLOBAL_HOOKS, before, strict=True):
        hooks.clear()
        hooks.update(own)


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # a default that is set costs time


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, _set_device),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (lambda: [dict(hooks) for hooks in _GLOBAL_HOOKS], _set_global_hooks),
    (np.geterr, lambda how: np.seterr(**how)),
)
"""The functions that read and set the global settings that affect later measurements."""
