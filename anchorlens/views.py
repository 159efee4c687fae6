"""Tables of functions that show a result, by its type: `anchorlens.show` and products fill them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

rooms: list[Callable[[], object]] = []
"""Functions that import the modules which fill the tables, the lightest first; `anchorlens` sets them."""


def table(name: str):
    """A function that shows a result by the function which is registered for its type.

    Args:
        name: of what it makes, in messages: `diagram`.
    """

    @functools.singledispatch
    def show(result: object, *arguments: object, **options: object) -> Any:
        for fill in rooms:  # nothing is registered for the type yet
            fill()
            if (draw := show.dispatch(type(result))) is not show.dispatch(object):
                return draw(result, *arguments, **options)
        raise ValueError(
            f"{type(result).__name__} has no {name} here. Install the package that provides it, or reinstall "
            "anchorlens: pip install --force-reinstall anchorlens"
        )

    return show


html = table("html")
"""What a notebook shows of a result: a piece of HTML."""
figure = table("figure")
"""The picture of a result, a plotly figure."""
page = table("page")
"""A result as an HTML page of its own."""
report = table("report")
"""Write the report of a result, at a path."""
summary = table("summary")
"""Write the summary of a result, at a path."""
