"""Code of somebody else's: what a Python file defines, and what installed packages bring by entry points.

Such code is run, with the rights of the user. A file is run only where the user names it, and a package only
where it is installed; checkpoints and configurations are data and never name code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from anchorlens.files.safe import read_bytes
from anchorlens.texts import safe_repr, safe_text


def defined_in(
    path: str | os.PathLike[str], what: str, definition: str, is_wanted: Callable[[Any, ModuleType], bool]
) -> list[Any]:
    """Run a Python file, and take what it defines of one kind.

    Args:
        path: of the file, .py. It is run again each time.
        what: is looked for: `probe`, `task`.
        definition: of it, in words, for whoever has none in the file.
        is_wanted: whether a value of the module is one.

    Returns:
        Each once, in the order in which they stand there; at least one.

    Raises:
        ValueError: a missing file, another suffix, an error while it runs (with its line), or none in it.
    """
    file = Path(path)
    try:
        is_file, exists = file.is_file(), file.exists()
        resolved = file.resolve() if is_file else file
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, or with a NUL; a loop of links
        cause = safe_text(getattr(error, "strerror", None) or error)
        raise ValueError(f"{safe_text(file)}: {cause}; give a Python file with {what}s") from None
    if file.suffix != ".py" or not is_file:
        got = f"{safe_text(file)}{'' if exists else ', which was not found'}"
        raise ValueError(f"your own {what}s must be in a Python file such as my_{what}.py, got {got}")
    if not os.access(resolved, os.R_OK):
        raise ValueError(f"{safe_text(file)}: Permission denied; give a Python file with {what}s")
    module = _run(resolved, str(file), what)
    values = {id(value): value for value in vars(module).values() if is_wanted(value, module)}
    if not values:
        del sys.modules[module.__name__]
        raise ValueError(f"{file} holds no {what}; one is {definition}")
    return list(values.values())


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """What installed packages, this one included, bring of a group, in the order of their names.

    What lies in the current folder is data, and not installed.
    """
    places = []
    for place in sys.path:
        with contextlib.suppress(OSError):  # the current folder may have been removed
            if os.path.realpath(place) != os.path.realpath(""):
                places.append(place)
    points = [point for point in _entry_points_in(tuple(places)) if point.group == group]
    return sorted(points, key=lambda point: (point.name, point.value))


def installed(
    group: str, what: str, name: str | None = None, package: str | None = None
) -> Iterator[tuple[Any, str]]:
    """Load what installed packages bring, in the order of their names, each with its origin in words.

    A product of ours whose folder was not found is passed over.

    Args:
        group: of the entry points: `anchorlens.tasks`.
        what: one of them is: `task`.
        name: of the only entry points to load; None for all.
        package: whose entry points alone are loaded; None for all.

    Raises:
        ValueError: one that does not load, with the package it is of.
    """
    for point in entry_points(group):
        owner = safe_text(point.dist.name if point.dist else point.value)
        if name not in (None, point.name) or package not in (None, owner) or _missing_product(point):
            continue
        origin = f"the {what} {safe_text(point.name)} of the installed package {owner}"
        try:
            yield point.load(), origin
        except Exception as error:
            raise ValueError(
                f"{origin} does not load ({safe_text(point.value)}: {type(error).__name__}: "
                f"{safe_text(error)}); mend, update or uninstall {owner}"
            ) from error


def what_to_install(group: str, name: object) -> str | None:
    """How to get what a product of ours brings, if this installation lacks its folder; else None."""
    for point in entry_points(group):
        if point.name == name and (product := _missing_product(point)):
            return (
                f"{point.name} belongs to {product}, which this installation lacks; "
                "install anchorlens whole: pip install --force-reinstall anchorlens"
            )
    return None


def _missing_product(point: metadata.EntryPoint) -> str | None:
    """The product of ours that an entry point belongs to, if its folder was not found."""
    product = ".".join(point.module.split(".")[:3])
    if not product.startswith("anchorlens.extras."):
        return None
    try:
        return None if importlib.util.find_spec(product) else product
    except ModuleNotFoundError:
        return product


@functools.lru_cache(maxsize=8)
def _entry_points_in(places: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of our groups in these folders; of two packages of one name the first counts."""
    path = list(places)
    names = [
        package.name
        for package in metadata.distributions(path=path)
        if any(point.group.startswith("anchorlens.") for point in package.entry_points)
    ]
    firsts = (next(iter(metadata.distributions(name=name, path=path))) for name in dict.fromkeys(names))
    points = itertools.chain.from_iterable(package.entry_points for package in firsts)
    return tuple(point for point in points if point.group.startswith("anchorlens."))


def is_own(code: object) -> bool:
    """Whether code is somebody else's: a function, or an object of a class, outside this package."""
    module = getattr(code, "__module__", None) or type(code).__module__
    return not module.startswith("anchorlens.")


@contextlib.contextmanager
def not_ending(name: str) -> Iterator[None]:
    """Turn `sys.exit` in code of the user's own into an error that names it.

    Raises:
        ValueError: the code tried to end the program.
    """
    try:
        yield
    except SystemExit as error:
        message = f"{name} must give a result, got sys.exit({safe_repr(error.code)}); leave that call out"
        raise ValueError(message).with_traceback(error.__traceback__) from error  # says where


def line_in(error: BaseException, file: str) -> str | None:
    """`line 12 of my_probe.py`: the innermost line of a file that an error came through, if it did."""
    if isinstance(error, SyntaxError) and error.filename == file:
        numbers = [error.lineno]
    else:
        numbers = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    if not numbers:
        return None
    # a cell of a notebook has a file name of its own, which says nothing
    return f"line {numbers[-1]}" + (f" of {Path(file).name}" if Path(file).is_file() else "")


def _run(file: Path, name: str, what: str) -> ModuleType:
    """The module that a file is; it has a name of its own, which dataclasses look up while it runs."""
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    module = ModuleType(f"own_{what}s_{digest}_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(read_bytes(file), file, "exec", dont_inherit=True), vars(module))  # no future of ours
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        syntax = isinstance(error, SyntaxError) and error.filename == str(file)
        message = error.msg if isinstance(error, SyntaxError) and syntax else " ".join(str(error).split())
        place = line_in(error, str(file))
        raise ValueError(
            f"{name} must be a module that can be imported; {'' if place is None else f'{place}: '}"
            f"{type(error).__name__}: {message}".removesuffix(": ")
        ) from error
    return module
