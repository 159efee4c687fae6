"""Writes docs/complexity_control.md from control_page.md.jinja, the claims, and the JSONs of the figures.

    python research/figures/control_page.py            # writes it
    python research/figures/control_page.py --check    # fails where it differs

The template has the words, every result is an expression. A claim whose figure has no JSON was not tested.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from shared import numerals
from shared.control_arms import CLAIMS, claims_in, judged
from shared.sentences import sentences_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE, TEMPLATE = DOCS / "complexity_control.md", "control_page.md.jinja"
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


def environment() -> jinja2.Environment:
    """What the templates of pages of claims are rendered with."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "number": numerals.number,
        "values": numerals.one_by_one,
        "interval": lambda ends: f"[{numerals.number(ends[0])}, {numerals.number(ends[1])}]",
    }
    return made


def written(found: Mapping[str, Any] | None = None) -> str:
    """The page."""
    found = figures_found() if found is None else found
    rows = answers(found)
    said = {row["name"]: row for row in rows}
    text = (
        environment()
        .get_template(TEMPLATE)
        .render(
            claims=rows,
            figures=found,
            mean=mean_of(found),
            said=said,
            so=sentences_of(Path(TEMPLATE)),
            ten=ten_runs(),
            mean_of_runs=mean_of_runs,
        )
    )
    return text.strip() + "\n"


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


def write(doc: str | None, page: Path, text: str) -> None:
    """Read the command line, write a page or hold it against what would be written."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page differs")
    if not parser.parse_args().check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text("utf-8") != text:
        raise SystemExit(f"{page.name} is not what its template gives; run its script without --check")


if __name__ == "__main__":
    write(__doc__, PAGE, written())
