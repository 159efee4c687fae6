"""A plotly figure that a notebook shows offline: live, in VS Code, and saved as HTML."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

QUIET = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
"""No logo, and no button that uploads."""


class Picture(go.Figure):
    """A figure whose notebook output also holds HTML, with plotly.js in it, that loads nothing.

    plotly's own output is data for a front end that knows plotly; saved as HTML it is blank. plotly.js has
    4.8 MB, so it is put into the first picture's cell only (and again when that cell runs again); where the
    front end does not say which cell runs, into every one.
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
        with_library = cell is None or Picture._cell_with_library in (None, cell)
        if with_library:
            Picture._cell_with_library = cell
        html = self.to_html(
            config=QUIET, include_plotlyjs=with_library, include_mathjax=False, full_html=False
        )
        return {**self._repr_mimebundle_(), "text/html": html}


def _running_cell() -> str | None:
    """Which cell of a notebook runs now, as far as the front end tells it."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId")
