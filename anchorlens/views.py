"""Tables of functions that show a result, by its type, which `anchorlens.show` and products fill."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

rooms: list[Callable[[], object]] = []
"""The functions that import the modules which fill the tables, the lightest first, set by `anchorlens`."""


def table(name: str):
    """Create a function that shows a result with the function that is registered for the result's type.

    Args:
        name: the name of the picture or page in messages, for example `diagram`.
    """

    @functools.singledispatch
    def show(result: object, *arguments: object, **options: object) -> Any:
        for fill in rooms:  # nothing is registered for the type yet
            fill()
            if (draw := show.dispatch(type(result))) is not show.dispatch(object):
                return draw(result, *arguments, **options)
        raise ValueError(
            f"the result must have the view {name}, got {type(result).__name__} without this view. Install "
            "the package that provides the view, or reinstall anchorlens: run pip install --force-reinstall "
            ". in a clone"
        )

    return show


html = table("html")
"""The function that returns the HTML of a result for a notebook."""
figure = table("figure")
"""The function that returns the picture of a result, a plotly figure."""
page = table("page")
"""The function that returns a result as a separate HTML page."""
report = table("report")
"""The function that writes the report of a result to a path."""
summary = table("summary")
"""The function that writes the summary of a result to a path."""
