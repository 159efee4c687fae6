"""The tutorials, which lie beside docs/, as pages: copied before each build, with their stored outputs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from research_pages import downloads
from sphinx.application import Sphinx

_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
_LIVE = "application/vnd.plotly.v1+json"
"""What a page without scripts cannot show; the picture beside it can."""


def copy(source: Path, target: Path) -> None:
    """Make `target` hold the notebooks of `source` and no others.

    A notebook that is there already is left as it is, so that its page is not built again.
    """
    pages = {path.name: page(path, target) for path in sorted(source.glob("[0-9]*.ipynb"))}
    for left in target.glob("*.ipynb"):
        if left.name not in pages:
            left.unlink()
    for name, text in pages.items():
        if not (target / name).exists() or (target / name).read_text(encoding="utf-8") != text:
            (target / name).write_text(text, encoding="utf-8")


def page(path: Path, target: Path) -> str:
    """A notebook as a page: its figures are pictures, its links are turned to where the page is.

    Args:
        path: of the notebook.
        target: the folder of the page.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = downloads(relinked("".join(cell["source"]), path.parent, target))
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output["data"].pop(_LIVE, None)
    return json.dumps(notebook, ensure_ascii=False, indent=1)


def relinked(markdown: str, source: Path, target: Path) -> str:
    """Text whose links to files lead there from another folder; notebooks beside each other stay so.

    >>> text = "[probes](../docs/probes.md), [grid](../examples/grid.py#L3), [next](2_sweep.ipynb)"
    >>> relinked(text, Path("tutorials"), Path("docs/tutorials"))
    '[probes](../probes.md), [grid](../../examples/grid.py#L3), [next](2_sweep.ipynb)'
    """

    def turned(link: re.Match[str]) -> str:
        beside = link[1].partition("#")[0].endswith(".ipynb") and "/" not in link[1]
        return link[0] if beside else f"]({Path(os.path.relpath(source / link[1], target)).as_posix()})"

    return _LINK.sub(turned, markdown)


def _turn_to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """On a code-hosting page a link leads to a notebook, here to its page."""
    if "/" not in docname:
        source[0] = source[0].replace("](../tutorials/", "](tutorials/")
    elif docname == "tutorials/index":
        source[0] = source[0].replace("](../../tutorials/", "](")


def setup(app: Sphinx) -> dict[str, Any]:
    """Copy before Sphinx looks which pages there are."""
    docs = Path(app.srcdir)
    app.connect("config-inited", lambda app, config: copy(docs.parent / "tutorials", docs / "tutorials"))
    app.connect("source-read", _turn_to_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
