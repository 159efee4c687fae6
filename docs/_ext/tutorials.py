"""The tutorials, which lie beside docs/, as pages: copied before each build, with their stored outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def copy(source: Path, target: Path) -> None:
    """Make `target` hold the notebooks of `source` and no others, links turned to where pages are.

    A notebook that is there already is left as it is, so that its page is not built again.
    """
    names = {path.name for path in source.glob("[0-9]*.ipynb")}
    for left in target.glob("*.ipynb"):
        if left.name not in names:
            left.unlink()
    for name in sorted(names):
        text = relinked((source / name).read_text(encoding="utf-8"))
        page = target / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def relinked(text: str) -> str:
    """Markdown links as seen from docs/tutorials instead of tutorials.

    >>> relinked("[probes](../docs/probes.md), [grid](../examples/grid.py), [next](2_sweep.ipynb)")
    '[probes](../probes.md), [grid](../../examples/grid.py), [next](2_sweep.ipynb)'
    """
    return text.replace("](../", "](../../").replace("](../../docs/", "](../")


def setup(app: Sphinx) -> dict[str, Any]:
    """Copy before Sphinx looks which pages there are."""
    docs = Path(app.srcdir)
    app.connect("config-inited", lambda app, config: copy(docs.parent / "tutorials", docs / "tutorials"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
