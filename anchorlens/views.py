"""Tables of functions that show a result, by its type: `anchorlens.show` fills them, results call them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

rooms: list[Callable[[], object]] = []
"""Functions that import the modules which fill the tables, the lightest first; `anchorlens` sets them."""


def _table(name: str):
    """A function that shows a result by the function which is registered for its type."""

    @functools.singledispatch
    def show(result: Any, *arguments: Any, **options: Any) -> Any:
        for fill in rooms:  # nothing is registered for the type yet
            fill()
            if (draw := show.dispatch(type(result))) is not show.dispatch(object):
                return draw(result, *arguments, **options)
        raise TypeError(f"nothing shows {type(result).__name__} as {name}")

    return show


html = _table("html")
"""What a notebook shows of a result: a piece of HTML."""
figure = _table("figure")
"""The picture of a result, a plotly figure."""
page = _table("page")
"""A result as an HTML page of its own."""
report = _table("report")
"""Write the report of a result, at a path."""
summary = _table("summary")
"""Write the summary of a result, at a path."""
diagram = _table("diagram")
"""Write the diagram of a result, at a path."""
