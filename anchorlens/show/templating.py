"""The templates of the report, with its words and drawings."""

from __future__ import annotations

import functools

from jinja2 import Environment

from anchorlens import views
from anchorlens.show import words
from anchorlens.show.range_bar import range_bar
from anchorlens.tasks import phases

SHEETS = ("view.css", "parts.css")
"""Styles of what shows a verdict."""


@functools.cache
def environment() -> Environment:
    """The environment of the notebook's views, and what is the report's own."""
    made = views.environment()
    made.globals |= {"range_bar": range_bar, "words": words, "phases": phases}
    return made
