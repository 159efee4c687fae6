"""What shows a result, by its type: `anchorlens.show` fills these tables, and results ask them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

rooms: list[Callable[[], object]] = []
"""What imports the modules that fill the tables, the lightest first; the package's face names them."""


@functools.singledispatch
def html(result: Any) -> str:
    """What a notebook shows of a result: a piece of HTML."""
    return _found(html, result)


@functools.singledispatch
def page(result: Any) -> str:
    """A result as an HTML page of its own."""
    return _found(page, result)


@functools.singledispatch
def report(result: Any, path: Any, **options: Any) -> None:
    """Write the report of a result."""
    _found(report, result, path, **options)


@functools.singledispatch
def diagram(result: Any, path: Any, **options: Any) -> None:
    """Write the diagram of a result."""
    _found(diagram, result, path, **options)


def _found(table: Any, result: object, *arguments: Any, **options: Any) -> Any:
    """What draws a result of a type that is not in the table yet."""
    for fill in rooms:
        fill()
        if (draw := table.dispatch(type(result))) is not table.dispatch(object):
            return draw(result, *arguments, **options)
    raise TypeError(f"nothing shows {type(result).__name__} as {table.__name__}")
