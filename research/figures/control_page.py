"""Writes complexity_control.md from control_page.md.jinja, the claims, and the JSONs of the figures.

    python research/figures/control_page.py            # writes it
    python research/figures/control_page.py --check    # fails where it differs

The template has the words, every result is an expression. A claim whose figure has no JSON was not tested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared import numerals
from shared.control_arms import CLAIMS, claims_in, judged
from shared.pages import DOCS, rendered, write

HERE = Path(__file__).parent
PAGE, TEMPLATE = HERE / "complexity_control.md", HERE / "control_page.md.jinja"
FIGURES = DOCS / "images/figures"
TEN_RUNS = Path(__file__).parents[1] / "control/ten_runs.json"
"""What `control` made of ten runs, by research/control/ten_runs.py."""


def figures_found(folder: Path = FIGURES, names: str = "k[1-8]_*") -> dict[str, Any]:
    """Figure -> its JSON, of those that were run."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob(f"{names}.json"))}


def answers(found: Mapping[str, Any], claims: Path = CLAIMS) -> list[dict[str, Any]]:
    """Every claim in the order of the list, with its numbers and the verdict by rule."""
    rows = []
    for name, claim in claims_in(claims).items():
        asked = found.get(claim["figure"], {}).get("claims", {}).get(name, {"values": {}})
        rows.append(
            {"name": name, **claim, "bound": bound(claim), **judged(claim, asked["values"])._asdict()}
        )
    return rows


def bound(claim: Mapping[str, Any]) -> str:
    """What would confirm a claim, in words.

    >>> bound({"at_least": 0.1}), bound({"at_most": -1}), bound({"within": 0.05})
    ('at least 0.1', 'at most -1', 'within 0.05 of 0')
    """
    if "within" in claim:
        return f"within {numerals.number(claim['within'], None)} of 0"
    name = "at_least" if "at_least" in claim else "at_most"
    return f"{name.replace('_', ' ')} {numerals.number(claim[name], None)}"


def ten_runs() -> dict[str, Any] | None:
    """What `control` made of ten runs; None where they have not been tried."""
    return json.loads(TEN_RUNS.read_text("utf-8")) if TEN_RUNS.exists() else None


def written(found: Mapping[str, Any] | None = None) -> str:
    """The page."""
    found = figures_found() if found is None else found
    rows = answers(found)
    return rendered(
        TEMPLATE,
        claims=rows,
        figures=found,
        mean=mean_of(found),
        said={row["name"]: row for row in rows},
        ten=ten_runs(),
        mean_of_runs=mean_of_runs,
    )


def mean_of(found: Mapping[str, Any]) -> Any:
    """A function for the template: the mean over seeds of what the runs of an arm came to."""

    def mean(figure: str, arm: str, reading: str = "ood") -> str:
        values = [run[reading] for run in found[figure]["runs"] if run["arm"] == arm]
        if not values:
            raise KeyError(f"{figure} must have an arm {arm!r}")
        return numerals.number(sum(values) / len(values))

    return mean


def mean_of_runs(what: str) -> str:
    """Mean OOD of the runs that `control` tried: `anew` or after `control`."""
    cases = [case for case in (ten_runs() or {}).get("cases", []) if case.get("control")]
    values = [case[what]["ood"] for case in cases if case[what]["ood"] is not None]
    return numerals.number(sum(values) / len(values)) if values else "-"


if __name__ == "__main__":
    write(__doc__, [lambda: (PAGE, written())])
