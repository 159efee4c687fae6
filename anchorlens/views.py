"""How a result finds what draws it: by name, so that no result imports the room that draws."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def drawn(name: str) -> Callable[..., Any]:
    """A function of `anchorlens.show`, found when it is first needed.

    It serves `_repr_html_`, `.report()`, `.diagram()` and `figures.save`, and is the only way from below to
    the room that draws.
    """
    return getattr(importlib.import_module("anchorlens.show"), name)


def with_drawn(package: str, find: Callable[[str], Any], *names: str) -> Callable[[str], Any]:
    """A package's `__getattr__` that also finds, with a warning, what moved from it to `anchorlens.show`.

    Args:
        package: its name.
        find: its own `__getattr__`.
        *names: of the functions that moved.
    """

    def find_here_or_drawn(name: str) -> Any:
        if name not in names:
            return find(name)
        warnings.warn(f"{package}.{name} is now anchorlens.show.{name}", DeprecationWarning, stacklevel=2)
        return drawn(name)

    return find_here_or_drawn


def view(template: str, **content: Any) -> str:
    """What a notebook shows: `show.templating.view`."""
    return drawn("view")(template, **content)
