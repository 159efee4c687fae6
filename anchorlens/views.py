"""Tables of functions that show a result, by its type: `anchorlens.show` fills them, results call them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

rooms: list[Callable[[], object]] = []
"""Functions that import the modules which fill the tables, the lightest first; `anchorlens` sets them."""


@functools.singledispatch
def html(result: Any) -> str:
    """What a notebook shows of a result: a piece of HTML."""
    return _import_and_show(html, result)


@functools.singledispatch
def page(result: Any) -> str:
    """A result as an HTML page of its own."""
    return _import_and_show(page, result)


@functools.singledispatch
def report(result: Any, path: Any, **options: Any) -> None:
    """Write the report of a result."""
    _import_and_show(report, result, path, **options)


@functools.singledispatch
def diagram(result: Any, path: Any, **options: Any) -> None:
    """Write the diagram of a result."""
    _import_and_show(diagram, result, path, **options)


def _import_and_show(table: Any, result: object, *arguments: Any, **options: Any) -> Any:
    """Import modules until the table has a function for the result's type, and call that."""
    for fill in rooms:
        fill()
        if (draw := table.dispatch(type(result))) is not table.dispatch(object):
            return draw(result, *arguments, **options)
    raise TypeError(f"nothing shows {type(result).__name__} as {table.__name__}")
