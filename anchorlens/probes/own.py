"""Probes of one's own: from a Python file, beside the shipped ones, and what to say when one goes wrong."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from anchorlens.foreign import printable, read_bytes
from anchorlens.probes.registry import PROBES
from anchorlens.probes.result import ProbeResult

WHAT_A_PROBE_IS = (
    "a public function whose return annotation is a subclass of anchorlens.probes.ProbeResult, for example "
    "def my_probe(model, task) -> MyProbe"
)


def own_probes(path: str | os.PathLike[str]) -> tuple[Callable[..., ProbeResult], ...]:
    """Run a Python file, and take the probes that it defines.

    A probe is a public function defined in the file (not imported into it) whose return annotation is a
    subclass of `ProbeResult`. The file is a program and is run as one, so name only what you would run.
    Checkpoints are data: nothing in them is ever run.

    Args:
        path: of the file, .py. It is run again each time.

    Returns:
        Its probes, in the order in which they stand there; at least one.

    Raises:
        ValueError: no such file, another suffix, an error while it runs (with its line), or no probe in it.

    Example:
        >>> own_probes("my_probe.py")  # doctest: +SKIP
        (<function my_probe at 0x7f3b5c0d8860>,)
    """
    file = Path(path)
    try:
        is_file, exists = file.is_file(), file.exists()
        resolved = file.resolve() if is_file else file
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, or with a NUL; a loop of links
        cause = printable(getattr(error, "strerror", None) or error)
        raise ValueError(f"{printable(file)}: {cause}; give a Python file with probes") from None
    if file.suffix != ".py" or not is_file:
        got = f"{printable(file)}, which is {'none' if exists else 'not there'}"
        raise ValueError(f"probes of your own must be in a Python file, my_probe.py for example, got {got}")
    if not os.access(resolved, os.R_OK):
        raise ValueError(f"{printable(file)}: Permission denied; give a Python file with probes")
    module = _run(resolved, str(file))
    names = vars(module)
    found = {id(value): value for value in names.values() if _is_own_probe(value, names)}
    if not found:
        del sys.modules[module.__name__]
        raise ValueError(f"{file} holds no probe; one is {WHAT_A_PROBE_IS}")
    return tuple(found.values())


def with_own(paths: Iterable[str | os.PathLike[str]]) -> tuple[Callable[..., ProbeResult], ...]:
    """The shipped probes and, behind them, those of Python files.

    Args:
        paths: of the files; see `own_probes`.

    Raises:
        ValueError: a file that holds no probes, or a name that another probe has.
    """
    everything = list(PROBES)
    whose = dict.fromkeys((probe.__name__ for probe in PROBES), "a shipped probe")
    for path in paths:
        for probe in own_probes(path):
            name = probe.__name__
            if name in whose:
                raise ValueError(
                    f"{path}: the name {name} is that of {whose[name]}; give your probe another one"
                )
            whose[name] = f"a probe of {path}"
            everything.append(probe)
    return tuple(everything)


def first_sentence(probe: Callable[..., ProbeResult]) -> str:
    """Of its docstring, on one line; empty where it has none.

    >>> def entropy(model):
    ...     '''How evenly a head looks, e.g. at two
    ...     tokens. 0 = at one.'''
    >>> first_sentence(entropy)
    'How evenly a head looks, e.g. at two tokens.'
    """
    paragraph = (inspect.getdoc(probe) or "").strip().split("\n\n")[0]
    return re.split(r"(?<=[.!?])\s+(?![a-z])", " ".join(paragraph.split()), maxsplit=1)[0]


def what_went_wrong(error: Exception, probe: Callable[..., ProbeResult]) -> str:
    """An error of a probe in one line: what it refuses, or the kind of error, and where in your own file.

    Args:
        error: what it raised.
        probe: which.
    """
    text = " ".join(str(error).split())
    if not isinstance(error, ValueError) or not text:
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    elif probe in PROBES:
        return text  # a refusal, meant to be read
    code = getattr(inspect.unwrap(probe), "__code__", None)
    place = None if code is None else _line(error, code.co_filename)
    return text if place is None else f"{text} ({place})"


def _run(file: Path, name: str) -> ModuleType:
    """The module that a file is; it has a name of its own, which dataclasses look up while it runs."""
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    module = ModuleType(f"own_probes_{digest}_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(read_bytes(file), file, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        syntax = isinstance(error, SyntaxError) and error.filename == str(file)
        message = error.msg if isinstance(error, SyntaxError) and syntax else " ".join(str(error).split())
        place = _line(error, str(file))
        raise ValueError(
            f"{name} must run to be read; {'' if place is None else f'{place}: '}"
            f"{type(error).__name__}: {message}".removesuffix(": ")
        ) from error
    return module


def _is_own_probe(value: Any, names: Mapping[str, Any]) -> bool:
    if not inspect.isfunction(value) or value.__name__.startswith("_"):
        return False
    if value.__module__ != names["__name__"]:
        return False
    returned = value.__annotations__.get("return")
    if isinstance(returned, str):
        try:
            returned = eval(returned, dict(names))
        except Exception:
            return False  # a name that only a type checker knows is that of no result
    return inspect.isclass(returned) and issubclass(returned, ProbeResult)


def _line(error: BaseException, file: str) -> str | None:
    """`line 12 of my_probe.py`: the innermost line of a file that an error came through, if it did."""
    if isinstance(error, SyntaxError) and error.filename == file:
        numbers = [error.lineno]
    else:
        numbers = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    if not numbers:
        return None
    # a cell of a notebook has a file name of its own, which says nothing
    return f"line {numbers[-1]}" + (f" of {Path(file).name}" if Path(file).is_file() else "")
