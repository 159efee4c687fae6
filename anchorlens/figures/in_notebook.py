"""HTML output that a script draws: one cell's output holds the library, and every figure waits for it."""

from __future__ import annotations

import base64
import functools
import gzip
import sys
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

Library = Literal["Plotly", "CircuitsVis"]
"""Name of a JavaScript library in the browser."""

_HOLDERS: dict[Library, str | None] = {}
"""Library -> the cell whose output holds it, in this kernel."""

_HOLD = """<script>
if (!window.{library}) (async () => {{
  const packed = Uint8Array.from(atob("{packed}"), (byte) => byte.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}})();
</script>
"""
_WAIT = """<div id="{place}"></div>
<script>
(function draw(tries) {{
  const place = document.getElementById("{place}");
  if (place && window.{library}) {{
    place.textContent = "";
    {call};
  }} else if (place || tries < 50) {{
    if (tries === 50) place.textContent = "This picture waits for {library}, which stands in the output of "
      + "another cell: scroll to that one. If it is gone, restart the kernel and run all cells.";
    setTimeout(draw, tries < 50 ? 100 : 1000, tries + 1);
  }}
}})(0);
</script>"""


def source(library: Library) -> str:
    """The source of a library, escaped for a script element."""
    if library == "Plotly":
        from plotly.offline import get_plotlyjs

        text = get_plotlyjs()
    else:
        import circuitsvis

        bundle = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
        text = bundle.read_text(encoding="utf-8")
    # the replaced text occurs only within strings
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "\\x3c!--")


@functools.cache
def _packed(library: Library) -> str:
    """The source of a library, compressed to two fifths of its size."""
    return base64.b64encode(gzip.compress(source(library).encode(), mtime=0)).decode()


def drawn_by(library: Library, call: str, *, alone: bool = False) -> str:
    """A piece of HTML that loads nothing and draws as soon as the library is on the page.

    A library has megabytes, so only one cell of a notebook holds it: the first that draws with it (also when
    that cell runs again). Outside a notebook every piece holds it.

    Args:
        library: the library that draws.
        call: JavaScript call of the library; `place` is the element to draw into.
        alone: whether the piece holds the library even in a notebook.
    """
    cell = None if alone else _running_cell()
    held = ""
    if cell is None or _HOLDERS.setdefault(library, cell) == cell:
        held = _HOLD.format(library=library, packed=_packed(library))
    return held + _WAIT.format(place=f"picture-{uuid4()}", library=library, call=call)


def _running_cell() -> str | None:
    """The running cell of a notebook: its id, or its text if the front end (as nbconvert) gives no id."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code")
