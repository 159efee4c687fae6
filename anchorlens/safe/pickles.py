"""The pickles that `torch.save` writes, read without the `pickle` module: nothing is imported or called.

A pickle is a program for a stack machine. This machine has only instructions for plain data and tensors.
A name in the pickle stays a name, and is applied only if there is a function for the name here or in the
reader. Objects saved next to weights become plain data: configurations become dicts, sets become lists,
devices and paths become texts, NumPy's numbers become Python's numbers, and arrays become tensors.

`torch.load(weights_only=True)` was tried on the files of tests/malicious_files.py in place of this machine:
seven of them took all time or crashed the process, two took all memory, and nine were read.
"""

from __future__ import annotations

import json
import math
import pickletools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from anchorlens.safe.kinds import refused_name, unread
from anchorlens.safe.refusals import check_at_most, damaged, unsafe
from anchorlens.texts import safe_text

_MOST_INSTRUCTIONS = 1_000_000
_MOST_ARGUMENTS = 16
_FREE_BYTES, _BYTES_FOR_BYTE = 16 * 2**20, 16
"""The bytes that a pickle may build: a fixed number, plus a multiple of its length."""
_LONGEST_PATH = 4096
"""The largest number of characters of a path, as on Linux."""
_FREE_VALUES = 1_000_000
"""The values that a pickle of few bytes may count, if lists that share a list count it each time."""
_OBJECT = 64
"""The bytes of an empty container, rounded up."""
_REFERENCE = 8
"""The bytes of an item of a list or tuple."""
_ENTRY = 100
"""The bytes of an entry of a dict, rounded up."""
_COPY = {str: 1, bytes: 1, bytearray: 1, list: _REFERENCE, tuple: _REFERENCE, dict: _ENTRY}
"""The bytes of a copy for each item, by type."""

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}
_GATHERS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2}
_GATHERS_SINCE_MARK = ("TUPLE", "APPENDS", "SETITEMS", "ADDITEMS", "FROZENSET")
_ARGUMENTS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_PROTOCOLS = range(2, 6)
_KEYS = (float, bool, type(None))
"""The types of which at most a few values have the same hash."""
_LARGEST_KEY = 2**60
"""The limit of integers as keys of a dict, of which many larger ones may have the same hash. A dict of such
keys is very slow."""
_LARGEST_IN_TUPLE = 2**20
"""The limit of integers in tuples as keys of a dict."""
_LONGEST_TUPLE = 3
"""The largest number of values of a tuple as a key of a dict."""
_RECORDS = {
    "argparse.Namespace",
    "transformer_lens.HookedTransformerConfig.HookedTransformerConfig",
    "transformer_lens.config.HookedTransformerConfig.HookedTransformerConfig",
    "transformer_lens.config.hooked_transformer_config.HookedTransformerConfig",
    "anchorlens.models.transformer.configuration.HookedTransformerConfig",
    "anchorlens.extras.transformer_lens_4.configuration.HookedTransformerConfig",
}
"""The classes whose instances consist of their fields, one for each form of TransformerLens's name."""
_BUILTINS = ("builtins", "__builtin__")
_ARRAY = "numpy.ndarray"
_KINDS_OF_VALUES = ("list", "dict", "int", "float", "long")
_NAMES = frozenset({_ARRAY, *(f"{module}.{kind}" for module in _BUILTINS for kind in _KINDS_OF_VALUES)})
"""The names in the pickles of arrays and defaultdicts; they are never called."""
_NUMBERS = frozenset({"b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"})
"""The NumPy number types that can be read."""
MOST_DIMENSIONS = 16


class Name(str):
    """The name `module.name` of a global in a pickle.

    The reader never imports the global.
    """

    __slots__ = ()


class _NumberType(str):
    """The name of a NumPy type of numbers."""

    order = "="
    """The byte order of the type, known after its state is read."""


def read_pickle(
    data: bytes,
    functions: Mapping[str, Callable[..., Any]],
    names: frozenset[str],
    storage: Callable[[Any], Any],
    repeated: Callable[[Any], None] = lambda value: None,
) -> Any:
    """Read the value that a pickle of protocol 2 to 5 describes.

    Args:
        data: the bytes of the pickle.
        functions: a map from the names that the pickle may apply to the functions that are applied instead.
        names: the names that the pickle may only mention (dtypes, classes of storages).
        storage: the function that turns a persistent id into the storage.
        repeated: the function that is called with each value that the pickle uses again.

    Returns:
        Dicts, lists (also for sets), tuples, plain values, names, tensors, and the results of `functions`.

    Raises:
        ValueError: If an instruction or a name is not allowed, or the pickle is invalid.

    Example:
        >>> import pickle
        >>> read_pickle(pickle.dumps({"a": [1, 2.5]}, 2), {}, frozenset(), lambda key: None)
        {'a': [1, 2.5]}
        >>> read_pickle(pickle.dumps(print, 2), {}, frozenset(), lambda key: None)
        Traceback (most recent call last):
        ValueError: unsafe: the file would run __builtin__.print. Nothing ran. If you made the file, ...
    """
    budget = _FREE_BYTES + _BYTES_FOR_BYTE * len(data)
    machine = _Machine(functions, names, storage, repeated, budget)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data), start=1):
            check_at_most(_MOST_INSTRUCTIONS, count, "its pickle", "instructions")
            machine.step(opcode.name, argument)
        value = machine.stack.pop()
    except (IndexError, KeyError, TypeError, AttributeError):
        raise damaged("the pickle must contain only valid instructions, got an invalid instruction") from None
    except ValueError as error:
        raise ValueError(str(error).replace("model.state_dict()", machine.weights())) from None
    check_at_most(_FREE_VALUES + 10 * len(data), _n_values(value), "its nested lists and dicts", "values")
    return value


def _n_values(content: Any) -> int:
    """Count the values in nested dicts, lists and tuples, each as often as the content repeats it.

    Raises:
        ValueError: If a list contains itself.
    """
    counts: dict[int, int] = {}
    begun: set[int] = set()
    waiting = [content]
    while waiting:
        if id(value := waiting[-1]) in counts:  # it was waiting several times
            waiting.pop()
            continue
        parts = value.values() if isinstance(value, dict) else ()
        parts = value if isinstance(value, list | tuple) else parts
        inner = [one for one in parts if isinstance(one, dict | list | tuple) and id(one) not in counts]
        if not inner:
            counts[id(value)] = 1 + sum(counts.get(id(one), 1) for one in parts)
            waiting.pop()
        elif id(value) in begun:
            raise damaged("a list must not contain itself, got a list that does")
        else:
            begun.add(id(value))
            waiting += inner
    return counts[id(content)]


def _check_key(key: object) -> None:
    """Refuse a dict key that is not a plain value, or whose hash many other keys can share.

    Raises:
        ValueError: If the key is refused.
    """
    kind = type(key)
    parts: Any = key if kind is tuple else (key,)
    largest, plain = (_LARGEST_IN_TUPLE, (str,)) if kind is tuple else (_LARGEST_KEY, (str, *_KEYS))
    is_plain = (type(n) in plain or (type(n) is int and abs(n) < largest) for n in parts)
    if len(parts) <= _LONGEST_TUPLE and all(is_plain):
        return
    what = {tuple: "a tuple of other things", int: "so large an integer"}.get(kind, "an object")
    raise ValueError(unread(f"a dict with {what} as a key"))


def _has_tensors(table: dict[Any, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in table.values())


@dataclass(eq=False)
class _Machine:
    functions: Mapping[str, Callable[..., Any]]
    names: frozenset[str]
    storage: Callable[[Any], Any]
    repeated: Callable[[Any], None]
    budget: int
    """The number of bytes that may still be built."""
    stack: list[Any] = field(default_factory=list)
    outer: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    unbuilt: dict[int, tuple[Any, Callable[[Any, Any], None]]] = field(default_factory=dict)
    """The objects whose state is not yet read, by `id`, and the functions that read it."""
    protocol: int | None = None

    def __post_init__(self) -> None:
        arrays = dict.fromkeys((f"{core}.multiarray._reconstruct" for core in _CORES), self._new_array)
        self.functions = {**_FUNCTIONS, **arrays, "numpy.dtype": self._new_type, **self.functions}

    def weights(self) -> str:
        """Return the expression for the weights of the file, as far as it has been read."""
        pairs = (pair for values in (*self.outer, self.stack) for pair in pairwise(values))
        tables = (key for key, one in pairs if type(key) is str and type(one) is dict and _has_tensors(one))
        return next((f"ckpt[{json.dumps(key)}]" for key in tables), "model.state_dict()")

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        stack = self.stack
        self._spend(_REFERENCE)
        if name in _ARGUMENTS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._spend(_OBJECT)
            stack.append(_EMPTY[name]())
        elif name in _GATHERS:
            self._gather(name, self._take(_GATHERS[name]))
        elif name in _GATHERS_SINCE_MARK:
            values, self.stack = stack, self.outer.pop()
            self._gather(name, values)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._spend(_ENTRY)
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
            self.repeated(stack[-1])
        elif name == "MEMOIZE":
            self._spend(_ENTRY)
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GLOBAL", "INST"):
            stack.append(self._name(argument.replace(" ", ".", 1), name))
        elif name == "STACK_GLOBAL":
            module, attribute = self._take(2)
            if not type(module) is type(attribute) is str:
                raise TypeError
            stack.append(self._name(f"{module}.{attribute}", name))
        else:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        if name == "MARK":
            self._spend(_OBJECT)
            self.outer.append(self.stack)
            self.stack = []
        elif name == "BINPERSID":
            self.stack.append(self.storage(self.stack.pop()))
        elif name == "REDUCE":
            function, arguments = self._take(2)
            self.stack.append(self._apply(function, arguments))
        elif name == "NEWOBJ":
            cls, arguments = self._take(2)
            if type(cls) is not Name or cls not in _RECORDS:
                raise ValueError(refused_name(cls if type(cls) is Name else type(cls).__name__))
            if type(arguments) is not tuple or arguments:
                raise unsafe(f"the pickle must make {cls} without arguments, got arguments")
            self._spend(_OBJECT)
            self.stack.append(self._awaiting({}, _fill))
        elif name == "BUILD":
            state = self.stack.pop()
            self._spend_on(state if type(state) is tuple else (state,))
            self._set_state(self.stack[-1], state)
        elif name == "PROTO" and argument in _PROTOCOLS:
            self.protocol = argument
        elif name == "PROTO" or (self.protocol is None and name != "STOP"):
            got = argument if name == "PROTO" else "0 or 1"
            raise ValueError(
                f"the pickle protocol of the file must be 2 to 5, got {got}. Save the file with "
                "pickle_protocol=2"
            )
        elif name not in ("FRAME", "STOP"):
            rule = "the pickle must have only instructions that torch.save writes"
            raise unsafe(f"{rule}, got the pickle instruction {name}")

    def _name(self, name: str, instruction: str) -> Name:
        known = (self.names, self.functions, _RECORDS, _NAMES)
        if instruction == "INST" or not any(name in some for some in known):
            raise ValueError(refused_name(name))
        return Name(name)

    def _apply(self, function: object, arguments: object) -> Any:
        if type(function) is not Name or function not in self.functions or type(arguments) is not tuple:
            name = function if type(function) is Name else type(function).__name__
            raise ValueError(refused_name(name))
        if len(arguments) > _MOST_ARGUMENTS:
            rule = f"the pickle must apply a function to at most {_MOST_ARGUMENTS} values"
            raise unsafe(f"{rule}, got {len(arguments):,} for {safe_text(function)}")
        self._spend(_OBJECT + _ENTRY)
        self._spend_on(arguments)
        return self.functions[function](*arguments)

    def _spend(self, n_bytes: int) -> None:
        """Count the bytes of a value before it is built."""
        self.budget -= n_bytes
        if self.budget < 0:
            rule = "the pickle must build no more than its bytes can describe"
            raise unsafe(f"{rule}, got values of far more bytes")

    def _spend_on(self, values: Iterable[Any]) -> None:
        """Count the bytes that a copy of these values would take."""
        self._spend(sum(_COPY[type(value)] * len(value) for value in values if type(value) in _COPY))

    def _take(self, n: int) -> list[Any]:
        """Take the last n values off the stack."""
        taken = self.stack[-n:]
        if len(taken) < n:
            raise IndexError
        del self.stack[-n:]
        return taken

    def _gather(self, name: str, values: list[Any]) -> None:
        """Put values into a new tuple, or into the list or dict below them."""
        self._spend((_ENTRY if name.startswith("SETITEM") else _REFERENCE) * len(values))
        if name.startswith("TUPLE") or name == "FROZENSET":
            self._spend(_OBJECT)
            self.stack.append(list(values) if name == "FROZENSET" else tuple(values))
        elif name in ("APPEND", "APPENDS", "ADDITEMS") and type(self.stack[-1]) is list:
            self.stack[-1].extend(values)
        elif name.startswith("SETITEM") and type(self.stack[-1]) is dict and len(values) % 2 == 0:
            self._spend_on(values[::2])  # to compare a key with an equal one takes time
            for key in values[::2]:
                _check_key(key)
            self.stack[-1].update(zip(values[::2], values[1::2], strict=True))
        else:
            raise TypeError

    def _set_state(self, target: Any, state: Any) -> None:
        """Give an object its state, at most once, and ignore the version metadata of a state dict.

        Raises:
            ValueError: If the object takes no state, or the state is invalid.
        """
        _, read = self.unbuilt.pop(id(target), (None, None))
        if read is not None:
            read(target, state)
        elif type(target) is not dict:
            got = type(target).__name__
            raise unsafe(f"the pickle must not set the state of an object, got a state for {got}")

    def _awaiting(self, target: Any, read: Callable[[Any, Any], None]) -> Any:
        self.unbuilt[id(target)] = target, read
        return target

    def _new_type(self, code: object, *_: object) -> _NumberType:
        if code not in _NUMBERS:
            raise ValueError(refused_name("numpy.dtype"))
        return self._awaiting(_NumberType(code), _give_order)

    def _new_array(self, kind: object, *_: object) -> Tensor:
        _check_object(kind == _ARRAY)
        return self._awaiting(torch.empty(0, device="cpu"), _give_numbers)


def _check_object(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError(
            "the pickle must describe only valid objects, got an invalid object. Copy or download the file "
            "again"
        )


def _fill(record: dict[str, Any], state: Any) -> None:
    if type(state) is not dict or not all(type(name) is str for name in state):
        rule = "the pickle must set only the fields of an object"
        raise unsafe(f"{rule}, got a state that is not a table of fields")
    record.update(state)


def _give_order(kind: _NumberType, state: Any) -> None:
    _check_object(type(state) is tuple and len(state) >= 2 and state[1] in ("<", ">", "|", "="))
    kind.order = str(state[1])


def _give_numbers(tensor: Tensor, state: Any) -> None:
    _check_object(type(state) is tuple and len(state) == 5)
    _, shape, kind, by_columns, data = state
    tensor.data = _tensor(data, kind, shape, by_columns is True)  # in place: the pickle may have kept it


def is_shape(shape: Any) -> TypeGuard[tuple[int, ...]]:
    """Check whether a value is a short tuple of integers."""
    return type(shape) is tuple and len(shape) <= MOST_DIMENSIONS and all(type(n) is int for n in shape)


def _tensor(data: Any, kind: Any, shape: Any, by_columns: bool) -> Tensor:
    numbers = _numbers(data, kind)
    _check_object(is_shape(shape) and min(shape, default=0) >= 0 and math.prod(shape) == len(numbers))
    return torch.from_numpy(numbers.reshape(shape[::-1]).T if by_columns else numbers.reshape(shape))


def _numbers(data: Any, kind: Any) -> np.ndarray:
    """Copy the numbers in bytes to an array."""
    if type(data) not in (bytes, bytearray) or type(kind) is not _NumberType:
        raise ValueError(refused_name("numpy.ndarray"))
    written = np.dtype(kind.order + kind)
    _check_object(len(data) % written.itemsize == 0)
    return np.frombuffer(data, written).astype(np.dtype(str(kind)))


def _scalar(kind: object, data: object) -> Any:
    numbers = _numbers(data, kind)
    _check_object(len(numbers) == 1)
    return numbers[0].item()


def _from_buffer(data: object, kind: object, shape: object, order: object) -> Tensor:
    return _tensor(data, kind, shape, order == "F")


def _latin1(text: object, encoding: object) -> bytes:
    """Convert bytes from the form of protocol 2."""
    if type(text) is not str or encoding != "latin1" or max(text, default="") > "\xff":
        raise ValueError(refused_name("_codecs.encode"))
    return text.encode("latin1")


def _path(kind: type[PurePath], *parts: str) -> str:
    _check_object(sum(map(len, parts)) <= _LONGEST_PATH)
    return str(kind(*parts))


def _device(kind: object, index: object = None) -> str:
    _check_object(type(kind) is str and type(index) in (int, type(None)))
    return f"{kind}" if index is None else f"{kind}:{index}"


def _given(kind: type, value: object) -> Any:
    _check_object(type(value) is kind)
    return value


def _default_dict(kind: object = None) -> dict[Any, Any]:
    _check_object(kind is None or type(kind) is Name)
    return {}


_CORES = ("numpy.core", "numpy._core")
_PATHS = {"PosixPath": PurePosixPath, "WindowsPath": PureWindowsPath}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys((f"{core}.multiarray.scalar" for core in _CORES), _scalar),
    **dict.fromkeys((f"{core}.numeric._frombuffer" for core in _CORES), _from_buffer),
    **{
        f"{module}.{pure}{name}": partial(_path, kind)
        for module in ("pathlib", "pathlib._local")
        for pure in ("", "Pure")
        for name, kind in _PATHS.items()
    },
    **dict.fromkeys(
        (f"{m}.{kind}" for m in _BUILTINS for kind in ("set", "frozenset")), partial(_given, list)
    ),
    **dict.fromkeys((f"{module}.bytes" for module in _BUILTINS), lambda: b""),  # empty, in protocol 2
    "_codecs.encode": _latin1,
    "collections.Counter": partial(_given, dict),
    "collections.defaultdict": _default_dict,
    "torch.device": _device,
}
"""The objects that a pickle may make in addition to dicts, lists and tensors."""
