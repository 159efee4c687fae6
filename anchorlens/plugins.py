"""Foreign code: the definitions of a Python file, and the entry points of installed packages.

Foreign code runs with the rights of the user. A file runs only if the user names it, and a package only if
the user installed it. Checkpoints and configurations are data and never name code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from anchorlens.texts import safe_repr, safe_text

REINSTALL = "Reinstall anchorlens: run pip install --force-reinstall . in a clone"
"""The advice for a part of anchorlens that is missing. No package registry has anchorlens."""


def defined_in(
    path: str | os.PathLike[str], what: str, definition: str, is_wanted: Callable[[Any, ModuleType], bool]
) -> list[Any]:
    """Run a Python file, and return its definitions of a kind, such as probes.

    Args:
        path: the path of the `.py` file. The file is run again at each call.
        what: the name of the kind, such as `probe` or `task`.
        definition: the description of the kind, for the error about a file without definitions.
        is_wanted: the function that checks whether a value of the module is a definition.

    Returns:
        The definitions in the order of the file, without duplicates.

    Raises:
        ValueError: If the file is missing, or has another suffix.
        ValueError: If the file raises an error, or has no definition of the kind. The message gives the line
            of the error.
    """
    file = Path(path)
    try:
        resolved = file.resolve(strict=True)
        if file.suffix != ".py" or not resolved.is_file():
            raise ValueError("not a .py file")
        # a file of 0 bytes is not read: /proc/kmsg would wait for more (tests/files/test_unreadable_files.py)
        source = resolved.read_bytes() if resolved.stat().st_size else b""
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, or with a NUL; a loop of links
        cause = safe_text(getattr(error, "strerror", None) or error)
        raise ValueError(
            f"your own {what}s must be in a Python file, got {safe_text(file)}: {cause}. Give a file such as "
            f"my_{what}.py"
        ) from None
    module = _run(resolved, source, str(file), what)
    values = {id(value): value for value in vars(module).values() if is_wanted(value, module)}
    if not values:
        del sys.modules[module.__name__]
        raise ValueError(f"{file} must define a {what}, got a file without a {what}. Define {definition}")
    return list(values.values())


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group in installed packages, those of anchorlens first, ordered by name.

    The current folder is not searched, because it contains data and not installed packages.
    """
    places = []
    for place in sys.path:
        with contextlib.suppress(OSError):  # the current folder may have been removed
            if os.path.realpath(place) != os.path.realpath(""):
                places.append(place)
    points = [point for point in _entry_points_in(tuple(places)) if point.group == group]
    return sorted(points, key=lambda p: (not p.value.startswith("anchorlens."), p.name, p.value))


def installed(
    group: str,
    what: str,
    name: str | None = None,
    package: str | None = None,
    check: Callable[[Any], object] = lambda found: None,
    must: bool = False,
) -> Iterator[tuple[Any, str]]:
    """Load the entry points of installed packages, in order, each with a description of its origin.

    The function skips packages of `anchorlens.extras` whose folder was not found, and, with a warning, what
    cannot be used. Texts that a package prints at its import go to stderr.

    Args:
        group: the group of the entry points, such as `anchorlens.tasks`.
        what: the name of the kind, such as `task`.
        name: the name of the entry points to load. Default: all entry points.
        package: the package whose entry points are loaded. Default: all packages.
        check: the function that raises an error for an object that cannot be used.
        must: whether to raise an error for what cannot be used. Use it for what the user asks for.

    Raises:
        ValueError: If `must` is true, and an entry point cannot be used. The message names the package.
    """
    for point in entry_points(group):
        owner = safe_text(point.dist.name if point.dist else point.value)
        if name not in (None, point.name) or package not in (None, owner) or _missing_product(point):
            continue
        origin = f"the {what} {safe_text(point.name)} of the installed package {owner}"
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = point.load()
            check(found)
        except (Exception, SystemExit) as error:
            if must:
                raise ValueError(fault_of(origin, error)) from error
            leave_out(fault_of(origin, error))
        else:
            yield found, origin


def fault_of(origin: str, error: BaseException) -> str:
    """Return a line on something of an installed package that fails."""
    said = f"{type(error).__name__}: {safe_text(error)}"
    return f"{origin} must work, got an error ({said}). Repair, update or uninstall the package"


@functools.cache
def leave_out(message: str) -> None:
    """Say once on stderr that something of an installed package is left out, whatever filters warnings."""
    logging.getLogger("anchorlens").warning("anchorlens: %s", message)


def what_to_install(group: str, name: object) -> str | None:
    """Return advice if an entry point needs a package of `anchorlens.extras` that is missing, else `None`."""
    for point in entry_points(group):
        if point.name == name and (product := _missing_product(point)):
            return f"{point.name} belongs to {product}, which was not found. {REINSTALL}"
    return None


def _missing_product(point: metadata.EntryPoint) -> str | None:
    """Return the package of `anchorlens.extras` that an entry point needs, if the package was not found."""
    product = ".".join(point.module.split(".")[:3])
    if not product.startswith("anchorlens.extras."):
        return None
    try:
        return None if importlib.util.find_spec(product) else product
    except ModuleNotFoundError:
        return product


@functools.lru_cache(maxsize=8)
def _entry_points_in(places: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of our groups in these folders, from the first package of each name."""
    path = list(places)

    def ours(package: metadata.Distribution) -> list[metadata.EntryPoint]:
        return [point for point in package.entry_points if point.group.startswith("anchorlens.")]

    names = dict.fromkeys(package.name for package in metadata.distributions(path=path) if ours(package))
    firsts = (next(iter(metadata.distributions(name=name, path=path))) for name in names)
    return tuple(itertools.chain.from_iterable(map(ours, firsts)))


def is_own(code: object) -> bool:
    """Return whether a function, or the class of an object, is defined outside this package."""
    module = getattr(code, "__module__", None) or type(code).__module__
    return not module.startswith("anchorlens.")


@contextlib.contextmanager
def not_ending(name: str) -> Iterator[None]:
    """Turn `sys.exit` in the user's code into an error that names the user's function.

    Raises:
        ValueError: If the code tries to end the program.
    """
    try:
        yield
    except SystemExit as error:
        message = f"{name} must return a result, got sys.exit({safe_repr(error.code)}). Remove this call"
        raise ValueError(message).with_traceback(error.__traceback__) from error  # keeps the line


def line_in(error: BaseException, file: str) -> str | None:
    """Return the innermost line of a file in an error's traceback, such as `line 12 of my_probe.py`."""
    if isinstance(error, SyntaxError) and error.filename == file:
        numbers = [error.lineno]
    else:
        numbers = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    if not numbers:
        return None
    # the file name of a notebook cell has no meaning for the user
    return f"line {numbers[-1]}" + (f" of {Path(file).name}" if Path(file).is_file() else "")


def _run(file: Path, source: bytes, name: str, what: str) -> ModuleType:
    """Run a file as a module with a unique name, which dataclasses look up at run time."""
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    module = ModuleType(f"own_{what}s_{digest}_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # no future of ours
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        syntax = isinstance(error, SyntaxError) and error.filename == str(file)
        message = error.msg if isinstance(error, SyntaxError) and syntax else " ".join(str(error).split())
        place = line_in(error, str(file))
        raise ValueError(
            f"{name} must be a module that can be imported, got {'' if place is None else f'{place}: '}"
            f"{type(error).__name__}: {message}".removesuffix(": ")
        ) from error
    return module
