"""Writes docs/grokking.md from grokking_page.md.jinja, the claims, and the JSONs of the figures g1 to g3.

    python research/figures/grokking_page.py            # writes it
    python research/figures/grokking_page.py --check    # fails where it differs

The template has the words, every result is an expression. A claim whose figure has no JSON was not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from control_page import DOCS, answers, environment, figures_found, write
from shared.control_arms import GROKKING_CLAIMS
from shared.sentences import sentences_of

PAGE, TEMPLATE = DOCS / "grokking.md", "grokking_page.md.jinja"


def written(found: Mapping[str, Any] | None = None) -> str:
    """The page."""
    found = figures_found(names="g[1-3]_*") if found is None else found
    rows = answers(found, GROKKING_CLAIMS)
    text = (
        environment()
        .get_template(TEMPLATE)
        .render(
            claims=rows,
            figures=found,
            said={row["name"]: row for row in rows},
            so=sentences_of(Path(TEMPLATE)),
            steps=steps_of(found),
        )
    )
    return text.strip() + "\n"


def steps_of(found: Mapping[str, Any]) -> Any:
    """A function for the template: the mean over seeds of a step of an arm's runs, or `never`."""

    def steps(figure: str, arm: str, what: str = "generalises_at") -> str:
        values = [run[what] for run in found[figure]["runs"] if run["arm"] == arm]
        if not values:
            raise KeyError(f"{figure} must have an arm {arm!r}")
        return "never" if None in values else f"{fmean(values):,.0f}"

    return steps


if __name__ == "__main__":
    write(__doc__, PAGE, written())
