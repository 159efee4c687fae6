"""Writes ground_truth.md beside it from its template, expected.toml and the JSONs of measure.py.

    python research/ground_truth/truth_page.py            # writes it
    python research/ground_truth/truth_page.py --check    # fails where it differs

The template is ground_truth.md.jinja beside it: words by hand, every number an expression. A sentence in
`so(...)` that the numbers no longer bear out stops it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anchorlens.probes import PROBES

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "figures"))

from shared import numerals  # noqa: E402 # pyright: ignore[reportMissingImports]
from shared.pages import environment, rendered, write  # noqa: E402 # pyright: ignore[reportMissingImports]

TEMPLATE = HERE / "ground_truth.md.jinja"
PAGE = HERE / "ground_truth.md"
EXPECTED = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
CLOSE = 0.05
"""How far from what was expected a reading may lie; 1 and 0 are bounds: at least .95, at most .05."""
WORDS = {"-": "", "above": "> 0.05"}


def measured(name: str) -> dict[str, Any]:
    """A JSON of measure.py."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def as_expected(expected: float | str, value: float | None) -> bool | None:
    """Whether a reading is what was expected; None where nothing was, or there is no reading.

    >>> as_expected(1, 0.96), as_expected(0, -0.3), as_expected(0.5, 0.6), as_expected("above", 0.2)
    (True, True, False, True)
    >>> as_expected("-", 0.3), as_expected(1, None)
    (None, None)
    """
    if expected == "-" or value is None:
        return None
    if expected == "above":
        return value > CLOSE
    assert not isinstance(expected, str)
    if expected in (0, 1):
        return value >= 1 - CLOSE if expected else value <= CLOSE
    return abs(value - expected) <= CLOSE + 1e-9


def rows(group: str, found: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row of the expectations about a group, with what was read: column -> number or None."""
    for row in EXPECTED["reading"]:
        if group in row:
            read = {name: each[row["probe"]].get("readings", {}) for name, each in found.items()}
            yield row, {name: values.get(row["name"]) for name, values in read.items()}


def expected_of(group: str, row: Mapping[str, Any], column: str) -> float | str:
    """What was expected of a column: a circuit, or a route and its seed."""
    columns = EXPECTED["columns"][group]
    return row[group][columns.index(column if column in columns else column.rpartition("_")[0])]


def cell(expected: float | str, value: float | None) -> str:
    """A reading beside what was expected; bold where it is another.

    >>> cell(1, 1.0), cell(0, 0.06), cell("-", 0.3), cell("above", 0.4), cell(0, None)
    ('1.00 (1)', '**0.06** (0)', '0.30', '0.40 (> 0.05)', '- (0)')
    """
    text = numerals.number(value)
    text = f"**{text}**" if as_expected(expected, value) is False else text
    word = WORDS.get(str(expected), numerals.short(expected) if not isinstance(expected, str) else "")
    return f"{text} ({word})" if word else text


def table(group: str, found: Mapping[str, Any], kinds: Iterable[str]) -> str:
    """Rows of readings, a column for each circuit: what is read (what was expected)."""
    lines = [f"| reading | {' | '.join(f'`{name}`' for name in found)} |", "|---" * (len(found) + 1) + "|"]
    for row, read in rows(group, found):
        if row["kind"] in kinds:
            cells = (cell(expected_of(group, row, name), value) for name, value in read.items())
            lines.append(f"| `{row['probe']}` {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def count(group: str, found: Mapping[str, Any], kinds: Iterable[str]) -> tuple[int, int]:
    """How many readings are as expected, and of how many."""
    known = [
        as_expected(expected_of(group, row, name), value)
        for row, read in rows(group, found)
        if row["kind"] in kinds
        for name, value in read.items()
    ]
    known = [each for each in known if each is not None]
    return sum(known), len(known)


def misses(group: str, found: Mapping[str, Any], kinds: Iterable[str]) -> list[str]:
    """The readings that are not what was expected, in words."""
    return [
        f"`{row['probe']}` reports `{row['name']}` {numerals.number(value)} for `{name}` "
        f"(expected: {WORDS.get(str(asked), asked)})."
        for row, read in rows(group, found)
        if row["kind"] in kinds
        for name, value in read.items()
        if as_expected(asked := expected_of(group, row, name), value) is False
    ]


def weakest(stages: Mapping[str, float | None]) -> str:
    """The stage of a route without which the least is lost, and what is lost there.

    >>> weakest({"key to anchors": 1.0, "anchor 1 to last": 0.4})
    'anchor 1 to last 0.40'
    """
    stage, lost = min(stages.items(), key=lambda each: 1.0 if each[1] is None else each[1])
    return f"{stage} {numerals.number(lost)}"


def ranked(found: Mapping[str, Any], own: Mapping[str, str]) -> int:
    """In how many models the score of the imposed route is the largest of the three."""
    scores = {name: each["information_flow"]["readings"] for name, each in found.items()}
    return sum(
        read[own[name.rpartition("_")[0]]] == max(read[route] for route in own.values())
        for name, read in scores.items()
    )


def limitations() -> list[tuple[str, str]]:
    """Each probe, and the limitations in its docstring."""
    found = []
    for probe in PROBES:
        said = re.search(r"Limitations: (.+?)(?:\n\n|$)", inspect.getdoc(probe) or "", flags=re.DOTALL)
        found.append((probe.__name__, " ".join(said[1].split()) if said else ""))
    return found


def written(template: Path = TEMPLATE) -> str:
    """The page."""
    made = environment(template.parent)
    made.filters["site"] = lambda place: f"{place[0].removeprefix('hook_')}, {place[1]}, {place[2]}"
    return rendered(
        template,
        made,
        **{function.__name__: function for function in (min, max, table, count, misses, weakest, ranked)},
        limitations=limitations(),
        columns=EXPECTED["columns"],
        close=CLOSE,
        kinds={"causal": ["causal"], "other": ["attention", "geometry", "training"]},
        **measured("compiled"),
        **measured("imposed"),
    )


if __name__ == "__main__":
    write(__doc__, [lambda: (PAGE, written())])
