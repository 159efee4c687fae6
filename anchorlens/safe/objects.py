"""Objects saved next to weights, as plain data: the pickle's names are never imported.

Configurations become dicts, sets become lists, devices and paths become texts, NumPy's numbers become
Python's numbers, and arrays become tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorlens.safe.kinds import refused_name
from anchorlens.safe.pickles import Name

RECORDS = frozenset(
    {
        "argparse.Namespace",
        "transformer_lens.HookedTransformerConfig.HookedTransformerConfig",
        "transformer_lens.config.HookedTransformerConfig.HookedTransformerConfig",
        "transformer_lens.config.hooked_transformer_config.HookedTransformerConfig",
        "anchorlens.models.transformer.configuration.HookedTransformerConfig",
        "anchorlens.extras.transformer_lens_4.configuration.HookedTransformerConfig",
    }
)
"""The classes whose instances consist of their fields, one for each form of TransformerLens's name."""
_BUILTINS = ("builtins", "__builtin__")
_ARRAY = "numpy.ndarray"
_KINDS_OF_VALUES = ("list", "dict", "int", "float", "long")
NAMES = frozenset({_ARRAY, *(f"{module}.{kind}" for module in _BUILTINS for kind in _KINDS_OF_VALUES)})
"""The names in the pickles of arrays and defaultdicts; they are never called."""
_NUMBERS = frozenset({"b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"})
"""The NumPy number types that can be read."""
_MOST_DIMENSIONS = 16
_SENSELESS = (
    "the pickle must describe only valid objects, got an invalid object. Copy or download the file again"
)


class _NumberType(str):
    """The name of a NumPy type of numbers."""

    order = "="
    """The byte order of the type, known after its state is read."""


class Objects:
    """The objects that a pickle may make in addition to dicts, lists and tensors."""

    def __init__(self) -> None:
        self._unbuilt: dict[int, tuple[Any, Callable[[Any, Any], None]]] = {}
        """The objects whose state is not yet read, by `id`, and the functions that read it."""
        multiarray = {
            f"numpy.{core}.{name}": function
            for core in ("core", "_core")
            for name, function in (
                ("multiarray.scalar", _scalar),
                ("multiarray._reconstruct", self._new_array),
                ("numeric._frombuffer", _from_buffer),
            )
        }
        paths = {
            f"{module}.{pure}{kind}": joined
            for module in ("pathlib", "pathlib._local")
            for pure in ("", "Pure")
            for kind, joined in (("PosixPath", _posix_path), ("WindowsPath", _windows_path))
        }
        collected = {f"{module}.{kind}": _the_list for module in _BUILTINS for kind in ("set", "frozenset")}
        self.functions: Mapping[str, Callable[..., Any]] = {
            **{**multiarray, **paths, **collected},
            "numpy.dtype": self._new_type,
            **dict.fromkeys((f"{module}.bytes" for module in _BUILTINS), _no_bytes),
            "_codecs.encode": _latin1,
            "collections.Counter": _the_dict,
            "collections.defaultdict": _default_dict,
            "torch.device": _device,
        }

    def record(self) -> dict[str, Any]:
        """Make the empty dict that stands for an instance of a class in `RECORDS`."""
        return self._awaiting({}, _fill)

    def build(self, target: Any, state: Any) -> None:
        """Give an object its state, at most once, and ignore the version metadata of a state dict.

        Raises:
            ValueError: If the object takes no state, or the state is invalid.
        """
        _, read = self._unbuilt.pop(id(target), (None, None))
        if read is not None:
            read(target, state)
        elif type(target) is not dict:
            raise ValueError(
                "unsafe: the pickle must not set the state of an object, got a state for "
                f"{type(target).__name__}. Nothing ran. Save the weights alone"
            )

    def _awaiting(self, target: Any, read: Callable[[Any, Any], None]) -> Any:
        self._unbuilt[id(target)] = target, read
        return target

    def _new_type(self, code: object, *_: object) -> _NumberType:
        if code not in _NUMBERS:
            raise ValueError(refused_name("numpy.dtype"))
        return self._awaiting(_NumberType(code), _give_order)

    def _new_array(self, kind: object, *_: object) -> Tensor:
        if kind != _ARRAY:
            raise ValueError(_SENSELESS)
        return self._awaiting(torch.empty(0, device="cpu"), _give_numbers)


def _fill(record: dict[str, Any], state: Any) -> None:
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise ValueError(
            "unsafe: the pickle must set only the fields of an object, got a state that is not a table of "
            "fields. Nothing ran. Save the weights alone"
        )
    record.update(state)


def _give_order(kind: _NumberType, state: Any) -> None:
    if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
        raise ValueError(_SENSELESS)
    kind.order = state[1]


def _give_numbers(tensor: Tensor, state: Any) -> None:
    if type(state) is not tuple or len(state) != 5:
        raise ValueError(_SENSELESS)
    _, shape, kind, by_columns, data = state
    array = _tensor(data, kind, shape, by_columns is True)
    tensor.data = array  # in place, since the pickle may have kept it already


def _tensor(data: Any, kind: Any, shape: Any, by_columns: bool) -> Tensor:
    numbers = _numbers(data, kind)
    if type(shape) is not tuple or len(shape) > _MOST_DIMENSIONS or not all(type(n) is int for n in shape):
        raise ValueError(_SENSELESS)
    if min(shape, default=0) < 0 or math.prod(shape) != len(numbers):
        raise ValueError(_SENSELESS)
    array = numbers.reshape(shape[::-1]).T if by_columns else numbers.reshape(shape)
    return torch.from_numpy(array)


def _numbers(data: Any, kind: Any) -> np.ndarray:
    """Copy the numbers in bytes to a tensor."""
    if type(data) not in (bytes, bytearray) or type(kind) is not _NumberType:
        raise ValueError(refused_name("numpy.ndarray"))
    written = np.dtype(kind.order + kind)
    if len(data) % written.itemsize:
        raise ValueError(_SENSELESS)
    return np.frombuffer(data, written).astype(np.dtype(str(kind)))


def _scalar(kind: object, data: object) -> Any:
    numbers = _numbers(data, kind)
    if len(numbers) != 1:
        raise ValueError(_SENSELESS)
    return numbers[0].item()


def _from_buffer(data: object, kind: object, shape: object, order: object) -> Tensor:
    return _tensor(data, kind, shape, order == "F")


def _latin1(text: object, encoding: object) -> bytes:
    """Convert bytes from the form of protocol 2."""
    if type(text) is not str or encoding != "latin1" or max(text, default="") > "\xff":
        raise ValueError(refused_name("_codecs.encode"))
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Return bytes of length 0 from the form of protocol 2."""
    return b""


def _posix_path(*parts: str) -> str:
    return str(PurePosixPath(*parts))


def _windows_path(*parts: str) -> str:
    return str(PureWindowsPath(*parts))


def _device(kind: object, index: object = None) -> str:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise ValueError(_SENSELESS)
    return kind if index is None else f"{kind}:{index}"


def _the_list(items: object) -> list[Any]:
    if type(items) is not list:
        raise ValueError(_SENSELESS)
    return items


def _the_dict(counts: object) -> dict[Any, Any]:
    if type(counts) is not dict:
        raise ValueError(_SENSELESS)
    return counts


def _default_dict(kind: object = None) -> dict[Any, Any]:
    if not (kind is None or type(kind) is Name):
        raise ValueError(_SENSELESS)
    return {}
