"""How a result finds what draws it: by name, so that no result imports the room that draws."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def drawn(name: str) -> Callable[..., Any]:
    """A function of `anchorlens.show`, found when it is first needed.

    It serves `_repr_html_`, `.report()`, `.diagram()` and `figures.save`, and is the only way from below to
    the room that draws.
    """
    return getattr(importlib.import_module("anchorlens.show"), name)


def view(template: str, **content: Any) -> str:
    """What a notebook shows: `show.templating.view`."""
    return drawn("view")(template, **content)
