"""Output that scripts draw offline, and a plotly figure for notebooks, VS Code and notebooks saved as HTML.

Outputs in one window share one copy of the script's library. Every other output has a separate copy.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
import sys
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Literal
from uuid import uuid4

import plotly.graph_objects as go
import plotly.io as pio

from anchorlens.texts import safe_text

Library = Literal["Plotly", "CircuitsVis"]
"""The name of a JavaScript library in the browser."""

_HOLDERS: dict[Library, str | None] = {}
"""The cell of this kernel whose output contains the library, for each library."""

_SHARING = frozenset(("plotly_mimetype", "notebook", "notebook_connected", "jupyterlab", "vscode"))
"""The plotly renderers of front ends whose outputs share one window."""
_HOSTED = ("COLAB_", "DATABRICKS_RUNTIME", "KAGGLE_KERNEL", "COCALC_", "DEEPNOTE_")
"""The prefixes of environment variables of hosted notebooks, which may show each output in a window."""

_LIBRARY, _DRAWN = (
    Template((Path(__file__).parent / name).read_text(encoding="utf-8"))
    for name in ("library.html", "drawn.html")
)


def source(library: Library) -> str:
    """Return the source of a library, escaped for a script element."""
    if library == "Plotly":
        from plotly.offline import get_plotlyjs

        text = get_plotlyjs()
    else:
        import circuitsvis

        bundle = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
        text = bundle.read_text(encoding="utf-8")
    # The replaced text occurs only within strings.
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "\\x3c!--")


@functools.cache
def _packed(library: Library) -> str:
    """Return the source of a library, which is compressed to two fifths of its size."""
    return base64.b64encode(gzip.compress(source(library).encode(), mtime=0)).decode()


def drawn_by(library: Library, call: str, *, alone: bool = False) -> str:
    """Return HTML that loads no file, and that draws as soon as the library is on the page.

    The size of a library is several megabytes. If all outputs of a notebook certainly share one window, only
    the first cell that uses the library contains the library. The first cell also contains the library when
    the cell runs again. If the outputs may not share one window, every output contains the library.

    Args:
        library: the library that draws.
        call: the JavaScript call of the library. The variable `place` is the element to draw into.
        alone: whether the HTML contains the library even in a notebook.
    """
    cell = _running_cell() if not alone and _outputs_share_a_window() else None
    drawn = _DRAWN.substitute(place=f"picture-{uuid4()}", library=library, call=call).rstrip()
    if cell is None or _HOLDERS.setdefault(library, cell) == cell:
        return _LIBRARY.substitute(library=library, packed=_packed(library)) + drawn
    return drawn


def _outputs_share_a_window() -> bool:
    """Return whether the front end surely shows all outputs in one window, as Jupyter and VS Code do."""
    renderers = set((pio.renderers.default or "none").split("+"))
    hosted = "google.colab" in sys.modules or any(name.startswith(_HOSTED) for name in os.environ)
    return renderers <= _SHARING and not hosted


def _running_cell() -> str | None:
    """Return the id of the running cell of a notebook, or its text if the front end gives no id."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code")


QUIET = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
"""The plotly settings, with no logo and no button that uploads."""


def script_json(text: str) -> str:
    r"""Escape JSON text so that the text cannot end the script element that contains the text.

    >>> script_json('"</script>"')
    '"\\u003c/script>"'
    """
    return text.replace("<", "\\u003c")


def plotly_text(text: str) -> str:
    """Return a text on one line that plotly shows literally, without tags, entities or control characters.

    >>> plotly_text('<a href="x">a & b</a>')
    '&lt;a href="x"&gt;a &amp; b&lt;/a&gt;'
    """
    return escape(safe_text(text, None), quote=False)


class Picture(go.Figure):
    """A figure whose notebook output also contains HTML that works offline.

    The standard output of plotly needs a front end that supports plotly. In a notebook saved as HTML, the
    standard output is blank.
    """

    def show(self, *args: object, **kwargs: object) -> None:
        """Show the figure with the chosen renderer of plotly.

        Without a chosen renderer, the output also contains HTML that a saved notebook can show.
        """
        if args or kwargs or pio.renderers.default != "plotly_mimetype":
            super().show(*args, **kwargs)
        else:
            from IPython.display import display

            display(self._bundle(), raw=True)

    def _ipython_display_(self) -> None:
        self.show()

    def _bundle(self) -> dict[str, Any]:
        """Return data for front ends that support plotly, and HTML for other front ends."""
        content = json.loads(self.to_json() or "")
        parts = (content["data"], content["layout"], QUIET)
        arguments = ", ".join(script_json(json.dumps(part)) for part in parts)
        html = drawn_by("Plotly", f"Plotly.newPlot(place, {arguments})")
        return {**self._repr_mimebundle_(), "text/html": html}
