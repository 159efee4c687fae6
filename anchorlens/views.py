"""What a notebook shows of a result or a configuration: a piece of HTML from a template, without scripts.

Every string is escaped unless it is marked as our own. A view loads nothing, takes its colours from the page
around it, dark or light, and computes nothing that takes time.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.foreign import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
MOST_CHARACTERS = 240
"""Of a text in a view; the end of a longer one is left out."""


def drawn(name: str) -> Callable[..., Any]:
    """A function of `anchorlens.show`, found when it is first needed.

    Results have `_repr_html_` and `.report()`; what draws them stands above them, so that no result imports a
    page. This is the only way from below to the room that draws.
    """
    return getattr(importlib.import_module("anchorlens.show"), name)


def with_drawn(package: str, find: Callable[[str], Any], *names: str) -> Callable[[str], Any]:
    """A package's `__getattr__` that also finds, with a warning, what moved from it to `anchorlens.show`.

    Args:
        package: its name.
        find: its own `__getattr__`.
        *names: of the functions that moved.
    """

    def find_here_or_drawn(name: str) -> Any:
        if name not in names:
            return find(name)
        warnings.warn(f"{package}.{name} is now anchorlens.show.{name}", DeprecationWarning, stacklevel=2)
        return drawn(name)

    return find_here_or_drawn


def environment() -> Environment:
    """Jinja with autoescape and our formats."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_lines,
    )
    made.filters |= {"number": number, "plain": plain, "short": short, "ticks": ticks}
    return made


def _printable_lines(value: Any) -> Any:
    """What a template writes: of a foreign text no control characters, but its line breaks."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "\n".join(line if line.isprintable() else printable(line, None) for line in value.split("\n"))


def sources(made: Environment, names: Sequence[str]) -> Markup:
    """Style sheets or scripts of ours as they stand in the package, not to be escaped."""
    from markupsafe import Markup

    assert made.loader is not None
    return Markup().join(Markup(made.loader.get_source(made, name)[0]) for name in names)


def view(template: str, **content: Any) -> str:
    """A piece of HTML for a notebook.

    Args:
        template: one of the folder `templates`; it extends `view.html`.
        **content: what it shows.

    Returns:
        A `div` with its style.
    """
    return rendered(_shared(), ("view.css",), template, **content)


def rendered(made: Environment, sheets: Sequence[str], template: str, **content: Any) -> str:
    """The same with templates and style sheets of more folders.

    What is no text, which a file's name may hold, is replaced.
    """
    html = made.get_template(template).render(css=sources(made, sheets), **content)
    return html.encode(errors="replace").decode()


@functools.cache
def _shared() -> Environment:
    return environment()


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
    """A value of a configuration, in words.

    >>> plain(1 / 15), plain(None), plain([3, 4])
    ('0.0666667', 'none', '[3, 4]')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if isinstance(value, Mapping | Sequence):
        return json.dumps(value, ensure_ascii=False, default=str)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def ticks(text: str) -> Markup:
    """A text with what stands between backticks as code; all of it is escaped.

    >>> str(ticks("`a<b` where both are there"))
    '<code>a&lt;b</code> where both are there'
    """
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a tick without another
        return escape(text)
    return Markup().join(Markup(f"<code>{part}</code>") if i % 2 else part for i, part in enumerate(parts))


def short(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text without its end where it is too long for a view.

    >>> short("composition", 5)
    'comp…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
