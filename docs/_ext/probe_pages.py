"""What the page of a probe takes from the program: the directives `{caption}` and `{limitations}`."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LIMITATIONS = re.compile(r"^Limitations: (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
"""The paragraph of a docstring; the page has it as a section of its own."""


def limitations(probe: str) -> str:
    """The limitations in the docstring of a probe, in one line.

    >>> limitations("v_similarity")[:37]
    'The probe does not detect g(x; a) in '
    """
    from anchorlens.probes import probe_named

    (found,) = LIMITATIONS.findall(inspect.getdoc(probe_named(probe)) or "")
    return " ".join(found.split())


class Text(SphinxDirective):
    """Parse a text about the probe that the argument names, where the directive stands."""

    required_arguments = 1

    def text(self, probe: str) -> str:
        """The text, in Markdown."""
        raise NotImplementedError

    def run(self) -> list[Any]:
        """The text as nodes of the page."""
        return self.parse_text_to_nodes(self.text(self.arguments[0]))


class Caption(Text):
    """How to read the picture of a probe, as in a report."""

    def text(self, probe: str) -> str:
        """The caption."""
        from anchorlens.probes import SHIPPED
        from anchorlens.show.words import CAPTIONS

        assert probe in {each.__name__ for each in SHIPPED}  # products add their captions when imported
        return CAPTIONS[probe].how_to_read


class Limitations(Text):
    """What a probe does not show."""

    def text(self, probe: str) -> str:
        """The paragraph of the docstring."""
        return limitations(probe)


def without_limitations(text: str) -> str:
    """A docstring without the paragraph that is a section of the page."""
    return LIMITATIONS.sub("", text)


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "function" and name.startswith("anchorlens.probes."):
        lines[:] = without_limitations("\n".join(lines)).splitlines()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives, and take the limitations from what autodoc shows."""
    app.add_directive("caption", Caption)
    app.add_directive("limitations", Limitations)
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
