"""The functions that render templates to HTML for notebooks and pages.

The templates escape every string that anchorlens did not write. A view is a fragment without a script for a
notebook. It loads nothing, takes its colours from the surrounding page, and makes no slow computations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from anchorlens.show import evidence, tables, words
from anchorlens.show.words import TEMPLATES, heading, number, parts, plain, safe_lines, short, ticks
from anchorlens.tasks.shared import phases

VERDICT_SHEETS = ("view.css", "parts.css")
"""The style sheets for verdicts."""


@functools.cache
def environment() -> Environment:
    """Return a Jinja environment with autoescape, and with the shared formats, texts and drawings."""
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=safe_lines,
    )
    made.filters |= {format.__name__: format for format in (heading, number, parts, plain, short, ticks)}
    made.globals |= {"readings": evidence, "words": words, "phases": phases, "built": tables}
    return made


def rendered(template: str | Path, **content: object) -> str:
    """Render a template, and replace characters that UTF-8 cannot encode.

    Args:
        template: the name of a file in the folder `templates`, or the absolute path of a product's file.
        **content: the variables of the template.
    """
    return environment().get_template(str(template)).render(**content).encode(errors="replace").decode()


def sources(names: Sequence[str | Path]) -> Markup:
    """Return the text of style sheets or scripts without escaping.

    The names of style sheets and scripts have the same form as the names of templates.
    """
    return Markup("".join(map(_source, names)))


def _source(name: str | Path) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")  # an absolute path stays what it is


def view(template: str | Path, sheets: Sequence[str | Path] = ("view.css",), **content: object) -> str:
    """Return an HTML fragment for a notebook: a `div` with its style.

    Args:
        template: the template, as for `rendered`. The template extends `view.html`.
        sheets: the style sheets of the fragment.
        **content: the variables of the template.
    """
    return rendered(template, css=sources(sheets), **content)
