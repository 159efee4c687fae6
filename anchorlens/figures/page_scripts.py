"""The scripts of the page, and the policy that lets only these run and nothing be loaded."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup


@dataclass(frozen=True)
class Script:
    """A script that stands in the page."""

    name: str
    """For people."""
    text: str
    """Its source, which ends no script element."""

    @property
    def markup(self) -> Markup:
        """The source for the page, not to be escaped: nothing in it comes from a model or a file name."""
        return Markup(self.text)

    @property
    def megabytes(self) -> str:
        """Its size."""
        return f"{len(self.text.encode()) / 1e6:.1f} MB"

    @property
    def digest(self) -> str:
        """What the policy calls it."""
        return "sha256-" + base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()


def plotly_js() -> Script:
    """plotly.js, as it comes with plotly."""
    from plotly.offline import get_plotlyjs

    return Script("plotly.js", _inline(get_plotlyjs()))


def circuitsvis_js() -> Script:
    """The bundle of circuitsvis, once for every view; its own `render` puts one into each."""
    import circuitsvis

    bundle = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
    return Script("circuitsvis", _inline(bundle.read_text(encoding="utf-8")))


def policy(scripts: Sequence[Script]) -> str:
    """The content security policy: these scripts by their hashes, images from memory, and nothing else.

    Styles may stand inline, as plotly.js and circuitsvis set them on what they draw.
    """
    hashes = " ".join(f"'{script.digest}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _inline(text: str) -> str:
    """A library's source as it may stand in a script element; both replacements are within its strings."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "\\x3c!--")
