"""What a notebook shows of orbits."""

from pathlib import Path

from anchorlens.show import view
from anchorlens.views import html
from largest.result import Orbits


@html.register
def orbits_html(result: Orbits) -> str:
    """The orbits, a line each."""
    return view(Path(__file__).parent / "orbits.html", orbits=result.members)
