"""The short view of one verdict, for notebooks."""

from __future__ import annotations

from anchorlens.report.templating import environment, source
from anchorlens.verdict.verdict import Verdict


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
    return environment().get_template("card.html").render(verdict=verdict, css=source("parts.css"))
