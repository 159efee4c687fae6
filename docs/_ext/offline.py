"""The built site loads nothing from the network: every page and style sheet is read once it stands."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_LOADING = {"src", "srcset", "poster", "data", "background"}
"""Attributes from which a browser loads on its own; href of `link` is one more."""
_EXTERNAL = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
_IN_CSS = re.compile(r"""(?:url\(|@import)\s*['"]?\s*(?:https?:)?//[^'")\s]*""", re.IGNORECASE)


class _Loads(HTMLParser):
    """Collects what a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.in_style = tag == "style"
        if tag == "link" and values.get("rel") not in ("canonical", "alternate", "author", "license"):
            values["src"] = values.get("href")
        for name in _LOADING & values.keys():
            if any(_EXTERNAL.match(part) for part in (values[name] or "").split(",")):
                self.found.append(f"<{tag} {name}={values[name]!r}>")
        self.found += _IN_CSS.findall(values.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.found += _IN_CSS.findall(data)


def external_loads(text: str, *, css: bool = False) -> list[str]:
    """What a page or style sheet would load from another host; links that a reader follows are none.

    >>> external_loads('<a href="https://arxiv.org">x</a> <img src="_images/a.svg">')
    []
    >>> external_loads('<script src="https://cdn.example/x.js"></script>')
    ["<script src='https://cdn.example/x.js'>"]
    >>> external_loads("a { background: url(//fonts.example/f.woff) }", css=True)
    ['url(//fonts.example/f.woff']
    """
    if css:
        return _IN_CSS.findall(text)
    page = _Loads()
    page.feed(text)
    return page.found


def check(folder: Path) -> None:
    """Read every page and style sheet in a folder.

    Raises:
        ExtensionError: one of them loads something; every one is named.
    """
    found = []
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css"), *folder.rglob("*.svg")]):
        loads = external_loads(path.read_text(encoding="utf-8"), css=path.suffix == ".css")
        found += [f"{path.relative_to(folder)}: {what}" for what in loads]
    if found:
        raise ExtensionError("the site must load nothing from the network:\n" + "\n".join(found))


def _built(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        check(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """Look once everything is written."""
    app.connect("build-finished", _built, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
