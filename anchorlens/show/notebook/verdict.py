"""The short view of one verdict, for notebooks."""

from __future__ import annotations

from anchorlens.show.templating import VERDICT_SHEETS, view
from anchorlens.verdict.verdict import ProbeVerdict, Verdict
from anchorlens.views import html


@html.register
def by_probes_html(by_probes: ProbeVerdict) -> str:
    """Return the probe verdict, with the probabilities and the evidence, as HTML without a script."""
    return view("by_probes.html", VERDICT_SHEETS, by_probes=by_probes)


@html.register
def verdict_html(verdict: Verdict) -> str:
    """Return the verdicts, their agreement, the probabilities and the evidence as an HTML fragment.

    The fragment has no script, loads nothing, and takes its dark or light colours from the surrounding page.

    Example:
        >>> IPython.display.HTML(verdict_html(classify("ckpt.pt")))  # doctest: +SKIP
    """
    return view("card.html", VERDICT_SHEETS, verdict=verdict)
