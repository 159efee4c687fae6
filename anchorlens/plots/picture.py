"""A plotly figure that notebooks, VS Code and notebooks saved as HTML show offline."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from anchorlens.plots.in_notebook import drawn_by
from anchorlens.texts import safe_text

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
