"""The short view of one verdict, for notebooks."""

from __future__ import annotations

from anchorlens.show.templating import VERDICT_SHEETS, view
from anchorlens.verdict.mechanism import Mechanism
from anchorlens.verdict.verdict import Verdict
from anchorlens.views import html


@html.register
def mechanism_html(mechanism: Mechanism) -> str:
    """The mechanism verdict alone: the probabilities and the evidence, without a script."""
    return view("mechanism.html", VERDICT_SHEETS, mechanism=mechanism)


@html.register
def verdict_html(verdict: Verdict) -> str:
    """Both verdicts, whether they agree, the probabilities and the evidence, as a piece of HTML.

    It holds no script and loads nothing, and takes its colours from the page around it, dark or light.

    Example:
        >>> IPython.display.HTML(verdict_html(classify("ckpt.pt")))  # doctest: +SKIP
    """
    return view("card.html", VERDICT_SHEETS, verdict=verdict)
