"""The pickles that `torch.save` writes, read without the `pickle` module: nothing is imported or called.

A pickle is a program for a stack machine. This machine has only instructions for plain data and tensors.
A name in the pickle stays a name, and is applied only if the reader gives a function for the name. Objects
are made only of classes that the reader accepts as records.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anchorlens.safe.kinds import refused_name, unread
from anchorlens.safe.limits import check_at_most
from anchorlens.texts import safe_text

_MOST_INSTRUCTIONS = 1_000_000
_MOST_ARGUMENTS = 16
_FREE_BYTES, _BYTES_FOR_BYTE = 16 * 2**20, 16
"""The bytes that a pickle may build: a fixed number, plus a multiple of its length."""
_OBJECT, _REFERENCE, _ENTRY = 64, 8, 100
"""The bytes of an empty container, of an item of a list or tuple, and of a dict entry, rounded up."""
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
_LARGEST_KEY, _LARGEST_IN_TUPLE, _LONGEST_TUPLE = 2**60, 2**20, 3
"""The limits of integers as keys of a dict, and in tuples as keys. Many larger integers or longer tuples may
have the same hash, which makes a dict very slow."""


class Name(str):
    """The name `module.name` of a global in a pickle.

    The reader never imports the global.
    """

    __slots__ = ()


def read_pickle(
    data: bytes,
    functions: Mapping[str, Callable[..., Any]],
    names: frozenset[str],
    storage: Callable[[Any], Any],
    repeated: Callable[[Any], None] = lambda value: None,
    records: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    build: Callable[[Any, Any], None] = lambda target, state: None,
) -> Any:
    """Read the value that a pickle of protocol 2 to 5 describes.

    Args:
        data: the bytes of the pickle.
        functions: a map from the names that the pickle may apply to the functions that are applied instead.
        names: the names that the pickle may only mention (dtypes, classes of storages).
        storage: the function that turns a persistent id into the storage.
        repeated: the function that is called with each value that the pickle uses again.
        records: a map from the classes whose objects the pickle may make to the functions that make the
            objects.
        build: the function that gives an object on the stack its state.

    Returns:
        Dicts, lists (also for sets), tuples, plain values, names, and the results of `functions` and
        `records`.

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
    machine = _Machine(functions, names, storage, repeated, records, build)
    machine.budget = _FREE_BYTES + _BYTES_FOR_BYTE * len(data)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data), start=1):
            check_at_most(_MOST_INSTRUCTIONS, count, "its pickle", "instructions")
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError(
            "the pickle must contain only valid instructions, got an invalid instruction. The file is "
            "damaged. Copy or download the file again"
        ) from None
    return machine.result


def _check_key(key: object) -> None:
    """Refuse a dict key that is not a plain value, or whose hash many other keys can share.

    Raises:
        ValueError: If the key is refused.
    """
    kind = type(key)
    parts: Any = key if kind is tuple else (key,)
    largest = _LARGEST_IN_TUPLE if kind is tuple else _LARGEST_KEY
    if len(parts) <= _LONGEST_TUPLE and all(
        type(part) is str
        or (type(part) is int and abs(part) < largest)
        or (kind is not tuple and type(part) in _KEYS)
        for part in parts
    ):
        return
    what = {tuple: "a tuple of other things", int: "so large an integer"}.get(kind, "an object")
    raise ValueError(unread(f"a dict with {what} as a key"))


class _Machine:
    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        names: frozenset[str],
        storage: Callable[[Any], Any],
        repeated: Callable[[Any], None],
        records: Mapping[str, Callable[[], Any]],
        build: Callable[[Any, Any], None],
    ) -> None:
        self.functions, self.names, self.storage = functions, names, storage
        self.repeated, self.records, self.build = repeated, records, build
        self.budget = 0
        """The number of bytes that may still be built."""
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.protocol: int | None = None
        self.result: Any = None

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
            if type(cls) is not Name or cls not in self.records:
                raise ValueError(refused_name(cls if type(cls) is Name else type(cls).__name__))
            if type(arguments) is not tuple or arguments:
                raise ValueError(
                    f"unsafe: the pickle must make {cls} without arguments, got arguments. Nothing ran. Save "
                    "the weights alone"
                )
            self._spend(_OBJECT)
            self.stack.append(self.records[cls]())
        elif name == "BUILD":
            state = self.stack.pop()
            self._spend_on(state if type(state) is tuple else (state,))
            self.build(self.stack[-1], state)
        elif name == "STOP":
            self.result = self.stack.pop()
        elif name == "PROTO" and argument in _PROTOCOLS:
            self.protocol = argument
        elif name == "PROTO" or self.protocol is None:
            got = argument if name == "PROTO" else "0 or 1"
            raise ValueError(
                f"the pickle protocol of the file must be 2 to 5, got {got}. Save the file with "
                "pickle_protocol=2"
            )
        elif name != "FRAME":
            what = f"the pickle instruction {name}"
            raise ValueError(
                f"unsafe: the pickle must have only instructions that torch.save writes, got {what}. Nothing "
                "ran. Save the weights alone"
            )

    def _name(self, name: str, instruction: str) -> Name:
        known = name in self.names or name in self.functions or name in self.records
        if instruction == "INST" or not known:
            raise ValueError(refused_name(name))
        return Name(name)

    def _apply(self, function: object, arguments: object) -> Any:
        if type(function) is not Name or function not in self.functions or type(arguments) is not tuple:
            name = function if type(function) is Name else type(function).__name__
            raise ValueError(refused_name(name))
        if len(arguments) > _MOST_ARGUMENTS:
            raise ValueError(
                f"unsafe: the pickle must apply a function to at most {_MOST_ARGUMENTS} values, got "
                f"{len(arguments):,} for {safe_text(function)}. Nothing ran. Save the weights alone"
            )
        self._spend(_OBJECT + _ENTRY)
        self._spend_on(arguments)
        return self.functions[function](*arguments)

    def _spend(self, n_bytes: int) -> None:
        """Count the bytes of a value before it is built."""
        self.budget -= n_bytes
        if self.budget < 0:
            raise ValueError(
                "unsafe: the pickle must build no more than its bytes can describe, got values of far more "
                "bytes. Nothing ran. Save the weights alone"
            )

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
