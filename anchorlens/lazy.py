"""Names of a package that are imported when they are first used: importing the package costs nothing."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package takes as its `__getattr__` and `__dir__`.

    Args:
        package: its full name.
        homes: public name -> the module it comes from, by its full name.
    """
    names = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        names[name] = getattr(importlib.import_module(homes[name]), name)
        return names[name]

    return get, lambda: sorted({*names, *homes})
