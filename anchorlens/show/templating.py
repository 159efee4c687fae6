"""Renders templates to HTML: a fragment without a script for a notebook, or a whole page.

Every string is escaped unless it is marked as our own. A view loads nothing, takes its colours from the page
around it, dark or light, and makes no slow computations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anchorlens.show import evidence, tables, words
from anchorlens.show.formats import heading, number, parts, plain, safe_lines, short, ticks
from anchorlens.show.words import TEMPLATES
from anchorlens.tasks.shared import phases

VERDICT_SHEETS = ("view.css", "parts.css")
"""Style sheets for verdicts."""


@functools.cache
def environment() -> Environment:
    """Jinja with autoescape, our formats, and the words and drawings that templates share."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=safe_lines,
    )
    made.filters |= {format.__name__: format for format in (heading, number, parts, plain, short, ticks)}
    made.globals |= {"readings": evidence, "words": words, "phases": phases, "built": tables}
    return made


def rendered(template: str, **content: Any) -> str:
    """Render a template of the folder `templates`; characters that UTF-8 cannot encode are replaced."""
    return environment().get_template(template).render(**content).encode(errors="replace").decode()


def sources(names: Sequence[str]) -> Markup:
    """The text of our style sheets or scripts in the package, which is not escaped."""
    return Markup("".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names))


def view(template: str, sheets: Sequence[str] = ("view.css",), **content: Any) -> str:
    """An HTML fragment for a notebook: a `div` with its style.

    Args:
        template: a template of the folder `templates`; it extends `view.html`.
        sheets: its style sheets.
        **content: variables of the template.
    """
    return rendered(template, css=sources(sheets), **content)
