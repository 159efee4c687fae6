"""The frame of every page, with styles, scripts, and a security policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from anchorlens.files.checkpoint import library_versions
from anchorlens.files.writing import write_whole
from anchorlens.plots import complete
from anchorlens.plots.picture import QUIET, script_json, source
from anchorlens.probes.shared.contract import ProbeResult
from anchorlens.show.templating import VERDICT_SHEETS, rendered, sources
from anchorlens.show.words import caption_of
from anchorlens.views import html, page


def html_page(
    template: str | Path,
    *,
    scripts: Sequence[str | Path],
    styles: str | Path = "",
    **content: object,
) -> str:
    """Return a page in the style of the report.

    The page loads no file, and runs only the scripts that the page contains.

    Args:
        template: the template, as for `rendered`. The template extends `frame.html`.
        scripts: the scripts of this page, in order. The page puts plotly.js and `plots.js` before these
            scripts.
        styles: the style sheet of this page. The page puts the style sheets of the report before this sheet.
        **content: the variables of the template.
    """
    # not escaped, since no part of a script comes from a model
    plotly = Markup(source("Plotly"))
    programs = [plotly, Markup('"use strict";\n') + sources(("plots.js", *scripts))]
    return rendered(
        template,
        css=sources((*VERDICT_SHEETS, "page.css", *([styles] if styles else []))),
        plotly_config=Markup(script_json(json.dumps(QUIET))),
        megabytes=len(plotly) / 1e6,
        scripts=programs,
        policy=_policy(programs),
        versions=library_versions(),
        **content,
    )


def write_page(path: Path, html: str) -> None:
    """Write a page atomically, and replace each character of a file name that UTF-8 cannot encode."""
    write_whole(path, html.encode(errors="replace"))


@page.register
def picture_page(figure: go.Figure, result: object = None) -> str:
    """Return a plot as a separate page.

    Args:
        figure: the plot.
        result: the result that the plot shows. The page adds the notebook view of the result and, for a
            probe, instructions for reading the plot. Default: the plot alone.
    """
    drawn = complete(figure, "Picture")
    layout: Any = drawn["layout"]
    title = unescape(re.sub("<[^>]*>", " ", layout.title.text))
    drawn.update_layout(title_text="")
    return html_page(
        "figure.html",
        scripts=("page.js",),
        title=title,
        caption=caption_of(result.probe, result) if isinstance(result, ProbeResult) else None,
        figure=Markup(script_json(drawn.to_json() or "")),
        height=layout.height,
        view=Markup("" if result is None else html(result)),
    )


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy of a page with these scripts.

    The policy allows these scripts by their hashes, images from memory, and inline styles. plotly.js sets
    inline styles on elements. The policy allows nothing else.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
