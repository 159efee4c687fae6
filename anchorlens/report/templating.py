"""The templates of the report, with its words and drawings."""

from __future__ import annotations

import functools
from pathlib import Path

from jinja2 import Environment

from anchorlens import phases, views
from anchorlens.report import words
from anchorlens.report.range_bar import range_bar

TEMPLATES = Path(__file__).parent / "templates"
SHEETS = ("view.css", "parts.css")
"""Styles of what shows a verdict."""


@functools.cache
def environment() -> Environment:
    """The environment of the notebook's views, and what is the report's own."""
    made = views.environment(TEMPLATES)
    made.globals |= {"range_bar": range_bar, "words": words, "phases": phases}
    return made
