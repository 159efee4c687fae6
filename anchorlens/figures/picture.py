"""A plotly figure that a notebook shows offline: live, in VS Code, and saved as HTML."""

from __future__ import annotations

import json
from html import escape
from typing import Any
from uuid import uuid4

import plotly.graph_objects as go
import plotly.io as pio
from plotly.offline import get_plotlyjs

from anchorlens.safe import safe_text

QUIET = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
"""No logo, and no button that uploads."""


_DRAW = """<div id="{place}"></div>
<script>
(function draw(tries) {{
  if (window.Plotly) Plotly.newPlot("{place}", {data}, {layout}, {config});
  else if (tries) setTimeout(draw, 100, tries - 1);
  else document.getElementById("{place}").textContent =
    "plotly.js stood in a cell that is gone: restart the kernel and run all cells";
}})(100);
</script>"""


def script_json(text: str) -> str:
    r"""JSON text that stays within the script element it stands in.

    >>> script_json('"</script>"')
    '"\\u003c/script>"'
    """
    return text.replace("<", "\\u003c")


def plotly_text(text: str) -> str:
    """A text that plotly shows as it is: no tag, no entity, nothing that is no text, on one line.

    >>> plotly_text('<a href="x">a & b</a>')
    '&lt;a href="x"&gt;a &amp; b&lt;/a&gt;'
    """
    return escape(safe_text(text, None), quote=False)


class Picture(go.Figure):
    """A figure whose notebook output also holds HTML that loads nothing.

    plotly's own output is data for a front end that knows plotly; saved as HTML it is blank. plotly.js has
    4.8 MB, so it is put into one picture's cell only, the first that runs (and again when that one runs
    again), and the others wait for it, above or below; where the front end does not say which cell
    runs, into every one.
    """

    _cell_with_library: str | None = None

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Show it: as plotly does where you have chosen a renderer, else so that a notebook keeps it."""
        if args or kwargs or pio.renderers.default != "plotly_mimetype":
            super().show(*args, **kwargs)
        else:
            from IPython.display import display

            display(self._bundle(), raw=True)

    def _ipython_display_(self) -> None:
        self.show()

    def _bundle(self) -> dict[str, Any]:
        """Data for a front end that knows plotly, and HTML for one that does not."""
        cell = _running_cell()
        library = ""
        if cell is None or Picture._cell_with_library in (None, cell):
            Picture._cell_with_library = cell
            library = f"<script>{get_plotlyjs()}</script>\n"
        content = json.loads(self.to_json() or "")
        parts = {"data": content["data"], "layout": content["layout"], "config": QUIET}
        parts = {name: script_json(json.dumps(part)) for name, part in parts.items()}
        drawing = _DRAW.format(place=f"picture-{uuid4()}", **parts)
        return {**self._repr_mimebundle_(), "text/html": library + drawing}


def _running_cell() -> str | None:
    """Which cell of a notebook runs now, as far as the front end tells it."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId")
