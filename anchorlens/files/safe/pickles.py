"""The pickles that `torch.save` writes, read without the `pickle` module: nothing is imported or called.

A pickle is a program for a stack machine. This one knows the instructions that build plain data and tensors;
a name in the pickle stays a name, and can be applied only if the reader gives a function for it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from anchorlens.files.safe.kinds import refused_name, unread
from anchorlens.files.safe.limits import check_at_most
from anchorlens.texts import safe_text

_MOST_INSTRUCTIONS = 1_000_000
_MOST_ARGUMENTS = 16
_FREE_BYTES, _BYTES_FOR_BYTE = 16 * 2**20, 16
"""Bytes that a pickle may build: a fixed number, plus a multiple of its length."""
_OBJECT, _REFERENCE, _ENTRY = 64, 8, 100
"""Bytes of an empty container, of a place in a list or tuple, and of an entry of a dict, rounded up."""

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_GATHERS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2}
_GATHERS_SINCE_MARK = ("TUPLE", "APPENDS", "SETITEMS")
_ARGUMENTS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_PROTOCOLS = range(2, 6)
_RECORDS = {
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), "bytes"),
    **dict.fromkeys(("EMPTY_SET", "FROZENSET"), "a set"),
}
"""Instruction of protocols 3 to 5 -> what it builds, which is not read."""
_OTHER_KEYS = {tuple: "a tuple", float: "a float", bool: "a bool", type(None): "None"}
"""Types of keys of a dict that are not read."""
_LARGEST_KEY = 2**60
"""Limit of integers as keys of a dict: larger ones may all have the same hash, which makes a dict very
slow."""


class Name(str):
    """A global that a pickle names, `module.name`; it stays a name."""

    __slots__ = ()


def read_pickle(
    data: bytes,
    functions: Mapping[str, Callable[..., Any]],
    names: frozenset[str],
    storage: Callable[[Any], Any],
    repeated: Callable[[Any], None] = lambda value: None,
) -> Any:
    """What a pickle of protocol 2 to 5 describes.

    Args:
        data: the pickle.
        functions: name that the pickle may apply -> function that is applied instead.
        names: names that it may mention without applying them (dtypes, classes of storages).
        storage: turns a persistent id into the storage it refers to.
        repeated: is told of each value that the pickle uses once more.

    Returns:
        Dicts, lists, tuples, plain values, names, and what `functions` give back.

    Raises:
        ValueError: an instruction or a name that is not allowed, or a pickle that makes no sense.

    Example:
        >>> import pickle
        >>> read_pickle(pickle.dumps({"a": [1, 2.5]}, 2), {}, frozenset(), lambda key: None)
        {'a': [1, 2.5]}
        >>> read_pickle(pickle.dumps(print, 2), {}, frozenset(), lambda key: None)
        Traceback (most recent call last):
        ValueError: unsafe: it asks to run __builtin__.print; refused, nothing ran; if you made the file, ...
    """
    machine = _Machine(functions, names, storage, repeated, _FREE_BYTES + _BYTES_FOR_BYTE * len(data))
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data), start=1):
            check_at_most(_MOST_INSTRUCTIONS, count, "its pickle", "instructions")
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("damaged: its pickle makes no sense") from None
    return machine.result


def _is_key(value: object) -> bool:
    return type(value) is str or (type(value) is int and abs(value) < _LARGEST_KEY)


class _Machine:
    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        names: frozenset[str],
        storage: Callable[[Any], Any],
        repeated: Callable[[Any], None],
        budget: int,
    ) -> None:
        self.functions, self.names, self.storage = functions, names, storage
        self.repeated = repeated
        self.budget = budget
        """Bytes that may still be built."""
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
        elif name == "BUILD":  # the version metadata of a state dict; tensors have no state
            self.stack.pop()
            if type(self.stack[-1]) is not dict:
                raise ValueError("unsafe: it sets the state of an object; refused, nothing ran")
        elif name == "STOP":
            self.result = self.stack.pop()
        elif name == "PROTO" and argument in _PROTOCOLS:
            self.protocol = argument
        elif name in _RECORDS:
            raise ValueError(unread(_RECORDS[name]))
        elif name == "PROTO" or self.protocol is None:
            got = argument if name == "PROTO" else "0 or 1"
            raise ValueError(f"its pickle protocol must be 2 to 5, got {got}; save it with pickle_protocol=2")
        elif name != "FRAME":
            what = f"the pickle instruction {name}"
            raise ValueError(f"unsafe: it holds {what}, which torch.save never writes; refused, nothing ran")

    def _name(self, name: str, instruction: str) -> Name:
        if instruction == "INST" or (name not in self.functions and name not in self.names):
            raise ValueError(refused_name(name))
        return Name(name)

    def _apply(self, function: object, arguments: object) -> Any:
        if type(function) is not Name or function not in self.functions or type(arguments) is not tuple:
            name = function if type(function) is Name else type(function).__name__
            raise ValueError(refused_name(name))
        if len(arguments) > _MOST_ARGUMENTS:
            raise ValueError(
                f"unsafe: it applies {safe_text(function)} to {len(arguments):,} values; refused"
            )
        self._spend(_OBJECT + _ENTRY)
        return self.functions[function](*arguments)

    def _spend(self, n_bytes: int) -> None:
        """Count what is about to be built, before it is."""
        self.budget -= n_bytes
        if self.budget < 0:
            raise ValueError("unsafe: its pickle builds far more than its bytes can describe; refused")

    def _take(self, n: int) -> list[Any]:
        """The last n values, off the stack."""
        taken = self.stack[-n:]
        if len(taken) < n:
            raise IndexError
        del self.stack[-n:]
        return taken

    def _gather(self, name: str, values: list[Any]) -> None:
        """Put values into a new tuple, or into the list or dict below them."""
        self._spend((_ENTRY if name.startswith("SETITEM") else _REFERENCE) * len(values))
        if name.startswith("TUPLE"):
            self._spend(_OBJECT)
            self.stack.append(tuple(values))
        elif name.startswith("APPEND") and type(self.stack[-1]) is list:
            self.stack[-1].extend(values)
        elif name.startswith("SETITEM") and type(self.stack[-1]) is dict and len(values) % 2 == 0:
            for key in values[::2]:
                if not _is_key(key):
                    raise ValueError(unread(f"a dict with {_OTHER_KEYS[type(key)]} as a key"))
            self.stack[-1].update(zip(values[::2], values[1::2], strict=True))
        else:
            raise TypeError
