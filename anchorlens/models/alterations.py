"""Detect what a user's function alters in a model or in global settings, and restore it."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

PutBack: TypeAlias = Callable[[], bool]
"""A function that restores a value and returns whether the value had changed."""
_MOST_NAMES = 3
_HELD = {"_parameters": "weights", "_buffers": "buffers", "_modules": "modules", "training": "training mode"}
"""The names in words of the attributes of a module."""
_NOTHING = object()
"""The value of an attribute that does not exist."""


@contextlib.contextmanager
def assert_unmodified(name: str, *models: object) -> Iterator[None]:
    """Restore what the `with` block alters in models or settings, and raise an error that names the change.

    The function compares the weights, buffers, modules, hooks and other attributes of the models. The
    function also compares global settings, which are the gradient mode and torch's defaults. The function
    restores the gradients of weights and the random state without an error. The function needs memory for a
    copy of the models.

    Args:
        name: the name of the function that is called in the block.
        *models: the models given to the function. Only torch modules are compared.

    Raises:
        ValueError: If the block altered a model or a setting. The function does not catch errors that the
            block raises.
    """
    state = [*_of_models(models)]
    state += [(what, "", partial(_setting, get(), get, set_to)) for what, (get, set_to) in _SETTINGS.items()]
    raised = True
    try:
        with _random_state_kept():
            yield
        raised = False
    finally:
        changed: dict[str, list[str]] = {}
        for what, place, put_back in state:
            if put_back() and what and place not in (names := changed.setdefault(what, [])):
                names.append(place)
        if changed and not raised:
            what = "; ".join(f"{what}{_listed(places)}" for what, places in changed.items())
            raise ValueError(
                f"{name} must not change the model or global settings, got changes of {what}. anchorlens "
                "restored the original values. Let the probe change copy.deepcopy(model), remove its hooks, "
                "and restore each setting that it changes"
            )


def _listed(places: list[str]) -> str:
    more = len(places) - _MOST_NAMES
    shown = ", ".join(filter(None, places[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
    return f" ({shown})" if shown else ""


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


def _of_models(models: tuple[Any, ...]) -> Iterator[tuple[str, str, PutBack]]:
    """Yield the description, path and restoring function of each part of the models; each tensor once."""
    tensors: dict[int, tuple[str, str, PutBack]] = {}
    for model in models:
        modules = [*model.named_modules()] if isinstance(model, nn.Module) else []
        if hasattr(config := getattr(model, "cfg", None), "__dict__"):
            modules.append(("cfg", config))
        for path, module in modules:
            for name, value in {"forward": _NOTHING, **vars(module)}.items():
                what = "hooks" if "hooks" in name else _HELD.get(name, name)
                if what == name and (name.startswith("_") or name == "ctx"):
                    what = ""  # a forward pass may store it
                content = copy.copy(value) if isinstance(value, dict | list | set) else value
                yield what, path, partial(_attribute, module, name, value, content)
                for own, tensor in value.items() if isinstance(value, dict) else [(name, value)]:
                    if isinstance(tensor, Tensor) and not tensor.is_meta:
                        place = f"{path}.{own}".removeprefix(".")
                        tensors.setdefault(id(tensor), (what or name, place, _tensor(tensor)))
    yield from tensors.values()


def _attribute(owner: object, name: str, value: Any, content: Any) -> bool:
    """Restore an attribute, and what a dict, set or list in it held; return whether it had changed."""
    now = vars(owner).get(name, _NOTHING)
    changed = not _same(now, content)
    if value is _NOTHING:
        vars(owner).pop(name, None)
    elif changed or now is not value:
        vars(owner)[name] = value
        if isinstance(value, dict | set):
            value.clear()
            value.update(content)
        elif isinstance(value, list):
            value[:] = content
    return changed


def _same(now: Any, before: Any) -> bool:
    """Check whether two values are one object, equal constants, or containers of them in the same order."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(before, dict):
        return _same([*now, *now.values()], [*before, *before.values()])
    if isinstance(before, list | tuple):
        return len(now) == len(before) and all(map(_same, now, before))
    return isinstance(before, str | int | float | set | torch.dtype | torch.device) and now == before


def _tensor(tensor: Tensor) -> PutBack:
    storage, values = tensor.data, tensor.detach().clone()
    requires_grad = tensor.requires_grad
    gradient = tensor.grad if tensor.is_leaf else None
    gradient_values = None if gradient is None else gradient.clone()

    @torch.no_grad()
    def put_back() -> bool:
        changed = tensor.requires_grad != requires_grad
        if not _equal(tensor, values):
            changed = True
            tensor.data = storage
            storage.copy_(values)
        if tensor.is_leaf:
            tensor.requires_grad_(requires_grad)
            if gradient is not None and gradient_values is not None:
                gradient.copy_(gradient_values)
            tensor.grad = gradient
        return changed

    return put_back


def _equal(tensor: Tensor, values: Tensor) -> bool:
    """Check whether dtype, device, shape and values are equal; NaN equals NaN."""
    if (tensor.dtype, tensor.device, tensor.shape) != (values.dtype, values.device, values.shape):
        return False
    return torch.equal(tensor, values) or (
        tensor.is_floating_point() and torch.allclose(tensor, values, rtol=0, atol=0, equal_nan=True)
    )


def _deterministic() -> tuple[bool, ...]:
    warns, cudnn = torch.is_deterministic_algorithms_warn_only_enabled(), torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), warns, cudnn.deterministic, cudnn.benchmark


def _set_deterministic(flags: tuple[bool, ...]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags[2:]


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # a default that is set costs time


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (torch.get_default_device, _set_device),
    "torch's deterministic algorithms": (_deterministic, _set_deterministic),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's matrix precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "NumPy's handling of errors": (np.geterr, lambda how: np.seterr(**how)),
}
"""The global settings that affect later measurements -> the functions that read and set them."""


def _setting(value: object, get: Callable[[], Any], set_to: Callable[[Any], object]) -> bool:
    changed = get() != value
    if changed:
        set_to(value)
    return changed
