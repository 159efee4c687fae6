"""Writes grokking.md from grokking_page.md.jinja, the claims, and the JSONs of the figures g1 to g3.

    python research/figures/grokking_page.py            # writes it
    python research/figures/grokking_page.py --check    # fails where it differs

The template has the words, every result is an expression. A claim whose figure has no JSON was not tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from control_page import answers, figures_found
from shared import numerals
from shared.control_arms import GROKKING_CLAIMS
from shared.grokking import CURVES
from shared.pages import rendered, write

HERE = Path(__file__).parent
PAGE, TEMPLATE = HERE / "grokking.md", HERE / "grokking_page.md.jinja"


def written(found: Mapping[str, Any] | None = None) -> str:
    """The page."""
    found = figures_found(names="g[1-3]_*") if found is None else found
    rows = answers(found, GROKKING_CLAIMS)
    return rendered(
        TEMPLATE,
        claims=rows,
        figures=found,
        said={row["name"]: row for row in rows},
        mean_at=mean_at_end(found),
    )


def mean_at_end(found: Mapping[str, Any]) -> Any:
    """A function for the template: an accuracy at the end of the runs of an arm of g3, mean over seeds."""

    def mean_at(arm: str, name: str) -> str:
        runs = [run for run in found["g3_decay_gamma"]["runs"] if run["arm"] == arm]
        return numerals.number(fmean(run["curves"][-1][1 + CURVES.index(name)] for run in runs))

    return mean_at


if __name__ == "__main__":
    write(__doc__, [lambda: (PAGE, written())])
