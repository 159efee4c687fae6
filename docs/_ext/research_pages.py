"""Links to the pages of the studies, which are not on the site: a reader downloads them."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_OUTSIDE = re.compile(r"\[([^]]+)\]\(((?:\.\./)+(?:research|examples|tests)/[^)#\s]+\.md)(?:#[^)]*)?\)")


def downloads(markdown: str) -> str:
    """Text whose links to Markdown outside docs/ are downloads, without the section that they name.

    >>> downloads("See [the study](../research/holdout/holdout.md#results) and [a page](control.md#gpu).")
    'See {download}`the study <../research/holdout/holdout.md>` and [a page](control.md#gpu).'
    """
    return _OUTSIDE.sub(lambda link: f"{{download}}`{' '.join(link[1].split())} <{link[2]}>`", markdown)


def _turn(app: Sphinx, docname: str, source: list[str]) -> None:
    """On a code-hosting page the link leads to the page. Notebooks are turned in tutorials.py."""
    if app.env.doc2path(docname).suffix == ".md":
        source[0] = downloads(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Turn the links before a page is read."""
    app.connect("source-read", _turn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
