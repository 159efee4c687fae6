"""Functions that load your own probes from Python files and packages, and describe their errors."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

from anchorlens.plugins import defined_in, installed, line_in
from anchorlens.probes import registry
from anchorlens.probes.shared.contract import ProbeResult
from anchorlens.texts import first_sentence, safe_repr

WHAT_A_PROBE_IS = (
    "a public function whose return annotation is float, a mapping from names to numbers, or a subclass of "
    "anchorlens.probes.ProbeResult, for example def my_probe(model, task) -> float"
)


def own_probes(path: str | os.PathLike[str]) -> tuple[Callable[..., ProbeResult], ...]:
    """Run a Python file and return the probes that the file defines.

    A probe is a public function that the file defines. Functions that the file imports are not probes. The
    return annotation of a probe is a subclass of `ProbeResult`. For a function of `model` or `task`, it may
    also be `float`, or a mapping such as `dict[str, float]`. `own_probes` runs the file as a program, so give
    only a file that you would run. Checkpoints contain only data, and anchorlens never runs their content.

    Args:
        path: the path of the Python file (`.py`). Each call runs the file again.

    Returns:
        One or more probes, in the order of their definitions.

    Raises:
        ValueError: If the file is missing.
        ValueError: If the suffix of the file is not `.py`.
        ValueError: If the file defines no probe.
        ValueError: If the file raises an error. The message then contains the line number of the error.

    Example:
        >>> own_probes("my_probe.py")  # doctest: +SKIP
        (<function my_probe at 0x7f3b5c0d8860>,)
    """
    return tuple(defined_in(path, "probe", WHAT_A_PROBE_IS, _is_own))


def with_own(
    paths: Iterable[str | os.PathLike[str]], shipped: Sequence[Callable[..., ProbeResult]] | None = None
) -> tuple[Callable[..., ProbeResult], ...]:
    """Return the shipped probes, followed by the probes of installed packages and of Python files.

    A package adds a probe with the entry point `NAME = "MODULE:FUNCTION"` in the group `anchorlens.probes`.

    Args:
        paths: the paths of the Python files, as for `own_probes`.
        shipped: the shipped probes to include. Default: all shipped probes. Your probes must not have the
            name of any shipped probe, even if you do not include the shipped probe.

    Raises:
        ValueError: If a file defines no probes, or a probe whose name another probe has. A package's probe
            that cannot be used is left out with a warning.
    """
    known = {probe.__name__: (probe, "a shipped probe") for probe in registry.SHIPPED}

    def add(probe: Callable[..., ProbeResult], origin: str, blamed: str) -> None:
        name = probe.__name__
        if name in known:
            raise ValueError(
                f"{blamed}: the name of a probe must be unique, got {name}, which is already the name of "
                f"{known[name][1]}. Rename your probe"
            )
        known[name] = probe, origin

    def check(probe: object) -> None:
        if not inspect.isfunction(probe):
            raise ValueError(f"a probe must be a function, got {safe_repr(probe)}")
        if probe not in registry.SHIPPED:
            add(probe, "a probe of an installed package", "the entry point")

    list(installed("anchorlens.probes", "probe", check=check))
    for path in paths:
        for probe in own_probes(path):
            add(probe, f"a probe of {path}", str(path))
    left_out = () if shipped is None else [probe for probe in registry.SHIPPED if probe not in shipped]
    return tuple(probe for probe, _ in known.values() if probe not in left_out)


def in_one_sentence(probe: Callable[..., ProbeResult]) -> str:
    """Return the first sentence of a probe's docstring, or an empty text if the probe has no docstring.

    >>> def entropy(model):
    ...     '''How evenly a head looks, e.g. at two
    ...     tokens. 0 = at one.'''
    >>> in_one_sentence(entropy)
    'How evenly a head looks, e.g. at two tokens.'
    """
    return first_sentence((inspect.getdoc(probe) or "").strip().split("\n\n")[0])


def what_went_wrong(error: Exception, probe: Callable[..., ProbeResult]) -> str:
    """Return a text of one line about an error of a probe.

    If a shipped probe refuses its input, the text is the message of the error. For every other error, the
    text also contains the line number of the error in the code of the probe.

    Args:
        error: the error that the probe raised.
        probe: the probe that raised the error.
    """
    text = " ".join(str(error).split())
    if not isinstance(error, ValueError) or not text:
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    elif probe in registry.SHIPPED:
        return text  # the message of a refusal is written for the user
    code = getattr(inspect.unwrap(probe), "__code__", None)
    place = None if code is None else line_in(error, code.co_filename)
    return text if place is None else f"{text} ({place})"


def _is_own(value: object, module: ModuleType) -> bool:
    if not inspect.isfunction(value) or value.__name__.startswith("_") or value.__module__ != module.__name__:
        return False
    returned = value.__annotations__.get("return")
    if isinstance(returned, str):
        try:
            returned = eval(returned, dict(vars(module)))
        except Exception:
            return False  # an annotation that only a type checker can resolve is no result class
    returned = typing.get_origin(returned) or returned
    if not inspect.isclass(returned):
        return False
    of_a_model = {"model", "task"} & set(inspect.signature(value).parameters)
    return issubclass(returned, (ProbeResult, float, Mapping) if of_a_model else ProbeResult)
