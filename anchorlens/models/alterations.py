"""Detect what a user's function alters in a model or in global settings, and restore it."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

PutBack: TypeAlias = Callable[[], bool]
"""A function that restores a value and returns whether the value had changed."""
_MOST_NAMES = 3
_MOST_DRAWN = 12_000_000
"""The number of draws after which a generator counts as seeded."""
_HELD = {"_parameters": "weights", "_buffers": "buffers", "_modules": "modules", "training": "training mode"}
"""The names in words of the attributes of a module."""
_NOTHING = object()
"""The value of an attribute that does not exist."""


@contextlib.contextmanager
def unaltered(name: str, *models: object) -> Iterator[None]:
    """Restore what the `with` block alters in models or settings, and raise an error that names the change.

    The function compares the weights, buffers, modules, hooks and other attributes of the models. The
    function also compares global settings, which are the gradient mode, torch's defaults and the seeds of
    random numbers. The function restores the gradients of weights without an error. The function also
    restores the random state without an error, unless the block sets a seed. The function needs memory for a
    copy of the models.

    Args:
        name: the name of the function that is called in the block.
        *models: the models given to the function. Only torch modules are compared.

    Raises:
        ValueError: If the block altered a model or a setting. The function does not catch errors that the
            block raises.
    """
    state = [*_of_models(models), *_of_settings(), *_of_generators()]
    raised = True
    try:
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
                yield what, path, _attribute(module, name, value)
                for own, tensor in value.items() if isinstance(value, dict) else [(name, value)]:
                    if isinstance(tensor, Tensor) and not tensor.is_meta:
                        place = f"{path}.{own}".removeprefix(".")
                        tensors.setdefault(id(tensor), (what or name, place, _tensor(tensor)))
    yield from tensors.values()


def _attribute(owner: object, name: str, value: object) -> PutBack:
    content = _shallow(value)

    def put_back() -> bool:
        now = vars(owner).get(name, _NOTHING)
        changed = not _same(_shallow(now), content)
        if changed or now is not value:
            if value is _NOTHING:
                del vars(owner)[name]
                return changed
            vars(owner)[name] = value
            if isinstance(value, dict | set):
                value.clear()
                value.update(content)
            elif isinstance(value, list):
                value[:] = content
        return changed

    return put_back


def _shallow(value: object) -> Any:
    return copy.copy(value) if isinstance(value, dict | list | set) else value


def _same(now: Any, before: Any) -> bool:
    """Check whether two values are one object, equal constants, or containers of them in the same order."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(before, dict):
        return _same([*now, *now.values()], [*before, *before.values()])
    if isinstance(before, list | tuple):
        return all(_same(*both) for both in zip_longest(now, before, fillvalue=_NOTHING))
    return isinstance(before, str | int | float | set | torch.dtype | torch.device) and now == before


def _tensor(tensor: Tensor) -> PutBack:
    storage, values, requires_grad = tensor.data, tensor.detach().clone(), tensor.requires_grad
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


def _of_settings() -> Iterator[tuple[str, str, PutBack]]:
    def to(value: object, get: Callable[[], Any], set_to: Callable[[Any], object]) -> PutBack:
        def put_back() -> bool:
            changed = get() != value
            if changed:
                set_to(value)
            return changed

        return put_back

    for what, (get, set_to) in _SETTINGS.items():
        yield what, "", to(get(), get, set_to)


def _of_generators() -> Iterator[tuple[str, str, PutBack]]:
    seed, of_torch, of_python = torch.initial_seed(), torch.get_rng_state(), random.getstate()
    of_numpy: Any = np.random.get_state(legacy=False)
    of_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def torchs() -> bool:
        seeded = torch.initial_seed() != seed
        torch.set_rng_state(of_torch)
        torch.cuda.set_rng_state_all(of_cuda)
        return seeded

    def numpys() -> bool:
        now: Any = np.random.get_state(legacy=False)
        np.random.set_state(of_numpy)
        known = "key" in of_numpy["state"] and "key" in now["state"]  # else another kind of generator
        return known and _seeded(*((one["state"]["key"], one["state"]["pos"]) for one in (of_numpy, now)))

    def pythons() -> bool:
        now = random.getstate()
        random.setstate(of_python)
        return _seeded(*((one[1][:-1], one[1][-1]) for one in (of_python, now)))

    for library, put_back in (("torch", torchs), ("NumPy", numpys), ("random", pythons)):
        yield f"the seed of {library}", "", put_back


def _seeded(before: tuple[Any, int], after: tuple[Any, int]) -> bool:
    """Check that no number of draws leads from one Mersenne Twister state (key, position) to another.

    >>> generator = random.Random(0)
    >>> before, _ = generator.getstate()[1], [generator.random() for _ in range(10_000)]
    >>> drawn, other = generator.getstate()[1], random.Random(1).getstate()[1]
    >>> [_seeded((before[:-1], before[-1]), (after[:-1], after[-1])) for after in (drawn, other)]
    [False, True]
    """
    earlier, later = np.random.MT19937(0), np.random.MT19937(0)
    for twister, (key, position) in ((earlier, before), (later, after)):
        content: Any = {"key": np.asarray(key, dtype=np.uint32), "pos": position}
        twister.state = {"bit_generator": "MT19937", "state": content}
    following = later.random_raw()
    return not any(following in earlier.random_raw(_MOST_DRAWN // 100) for _ in range(100))
