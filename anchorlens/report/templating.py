"""The templates of the report: every string is escaped unless it is marked as our own."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from anchorlens.report import words
from anchorlens.report.range_bar import range_bar


@functools.cache
def environment() -> Environment:
    """Jinja with autoescape, our formats and our words."""
    made = Environment(
        loader=PackageLoader("anchorlens.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "plain": plain}
    made.globals |= {"range_bar": range_bar, "words": words}
    return made


def source(name: str) -> Markup:
    """A style sheet or script of ours as it stands in the package, not to be escaped."""
    environment_ = environment()
    assert environment_.loader is not None
    return Markup(environment_.loader.get_source(environment_, name)[0])


_LEAST = 5e-4


def number(value: float | None, spec: str = ".3g") -> str:
    """A number in a table; a true minus sign, `none` for what is no number, 0 for what is below .0005.

    >>> number(-0.12345), number(float("nan")), number(None), number(1.0, ".3f"), number(6e-10)
    ('−0.123', 'none', 'none', '1.000', '0')
    """
    if value is None or not math.isfinite(value):
        return "none"
    if abs(value) < _LEAST:
        value = 0.0
    return f"{value:{spec}}".replace("-", "−")


def plain(value: Any) -> str:
    """A value of a configuration, in words."""
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if isinstance(value, Mapping | Sequence):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
