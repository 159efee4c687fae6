"""The frame of every page: its styles and scripts, and the policy that lets nothing else in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from anchorlens.figures.page_scripts import Script, policy
from anchorlens.figures.picture import QUIET, script_json
from anchorlens.files.checkpoint import library_versions
from anchorlens.show.templating import SHEETS, environment
from anchorlens.views import sources


def framed(
    template: str, *, libraries: Sequence[Script], scripts: str, styles: str = "", **content: Any
) -> str:
    """A whole page.

    Args:
        template: it extends `frame.html`.
        libraries: scripts of others, plotly.js first.
        scripts: our own script of this page; `plots.js` comes before it.
        styles: our own style sheet of this page; those of the report come before it.
        **content: what the template shows.
    """
    made = environment()
    own = Script("page", Markup('"use strict";\n') + sources(made, ("plots.js", scripts)))
    css = sources(made, (*SHEETS, "page.css", *([styles] if styles else [])))
    everything = [*libraries, own]
    return made.get_template(template).render(
        libraries=libraries,
        scripts=everything,
        policy=policy(everything),
        css=css,
        plotly_config=Markup(script_json(json.dumps(QUIET))),
        versions=library_versions(),
        **content,
    )
