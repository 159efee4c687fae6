"""Counts anew, in the JSONs of figures 3, 4, 5 and 10 of 2501.08537, what follows from their cells.

    python research/figures/recount.py docs/images/figures/j5_complexity.json

For when a rule of counting has changed (ordering.py, phases_grid.py): nothing is trained, and no picture
depends on what is counted here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from j3_phases import measure_phases
from j4_masking import EXPECTED
from j5_complexity import PANELS
from j10_condensation import NUMBERS
from shared.common import plain
from shared.phases_grid import along_both


def stored(cell: Mapping[str, Any]) -> Any:
    """A cell of a JSON, as phases_grid.py takes it."""
    return SimpleNamespace(
        id=cell["cell"], fields=cell, numbers=cell, phase=cell.get("phase"), status=cell["status"]
    )


def cells_of(numbers: Mapping[str, Any], part: str, name: str) -> list[Any]:
    """The cells of the grid, or, where a JSON has not kept a number of all, those that have a phase.

    Stand-ins are none of them.
    """
    every = numbers["cells"] if "cells" in numbers else numbers["stable_rank"]["cells"]
    if name in every[0]:
        return [*map(stored, every)]
    labels = (found for found in numbers[part]["by_label"].values() if found["source"] == "grid")
    return [stored(cell) for found in labels for cell in found["cells"]]


def recounted(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON with the orders of its cells counted anew, and without what is no claim of the paper."""
    if numbers["figure"] == "j3_phases":
        return {**numbers, "phases": plain(measure_phases([*map(stored, numbers["phases"]["cells"])]))}
    if numbers["figure"] == "j4_masking":
        return without_what_is_not_claimed(numbers)
    parts = NUMBERS if numbers["figure"] == "j10_condensation" else (*PANELS, "stable_rank")
    found = dict(numbers)
    for part in parts:
        (name,) = numbers[part]["by_label"]["Phase 3"]["median"]
        found[part] = numbers[part] | plain(along_both(cells_of(numbers, part, name), name))
    return found


def without_what_is_not_claimed(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Figure 4: clusters are expected of labels that the paper speaks of; shares are counted by the page."""
    key, second = numbers["key_token"], numbers["second_anchor"]
    by_label = {
        label: found if label in EXPECTED else _without(found, "expected", "n_as_expected")
        for label, found in key["by_label"].items()
    }
    return {
        **numbers,
        "key_token": {**key, "by_label": by_label},
        "second_anchor": _without(second, "larger"),
    }


def _without(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def main() -> None:
    """Read the command line, count, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "json",
        type=Path,
        nargs="+",
        help="of j3_phases.py, j4_masking.py, j5_complexity.py or j10_condensation.py",
    )
    for path in parser.parse_args().json:
        numbers = recounted(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
