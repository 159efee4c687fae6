"""The short view of one verdict, for notebooks."""

from __future__ import annotations

from anchorlens.show.templating import SHEETS, environment
from anchorlens.verdict.mechanism import Mechanism
from anchorlens.verdict.verdict import Verdict
from anchorlens.views import rendered


def mechanism_html(mechanism: Mechanism) -> str:
    """The mechanism verdict alone: the probabilities and the evidence, as a piece of HTML without a script.

    Args:
        mechanism: what to show.
    """
    return rendered(environment(), SHEETS, "mechanism.html", mechanism=mechanism)


def verdict_html(verdict: Verdict) -> str:
    """Both verdicts, whether they agree, the probabilities and the evidence, as a piece of HTML.

    It holds no script and loads nothing, and takes its colours from the page around it, dark or light.

    Args:
        verdict: what to show.

    Returns:
        A `div` with its style.

    Example:
        >>> IPython.display.HTML(verdict_html(classify("ckpt.pt")))  # doctest: +SKIP
    """
    return rendered(environment(), SHEETS, "card.html", verdict=verdict)
