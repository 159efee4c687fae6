"""Train the zoo, take its readings, fit the mechanism verdict, and measure it on what was held out.

    python examples/calibrate.py --out runs/zoo [--write] [--json numbers.json]

Runs and readings that are in the folder are kept, so the same command continues (about an hour and a half
on 2 cores in all). --write replaces the calibration of the package. The tables are Markdown.

Fit on: seeds 0 to 5, widths 64 and 128, variants `gpt2` and `released`. Held out: seeds 6 to 8 altogether,
the widths 96 and 192, the variant `postnorm`. Nothing was chosen on what is held out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import anchorlens
from anchorlens.files.checkpoint import library_versions
from anchorlens.verdict.calibration import FORMAT_VERSION, LogisticModel
from calibration.fit import Row, fit_early, fit_final
from calibration.held_out import ablation_table, accuracy_table, confusion_table, early_table, verdicts
from calibration.zoo import GROUPS, measure_zoo, train_zoo, zoo

PACKAGED = Path(anchorlens.__file__).parent / "verdict/calibration.json"


def content(rows: Sequence[Row]) -> dict[str, Any]:
    """The calibration as JSON data."""
    fitted = [row for row in rows if row["group"] == "fit"]
    shapes = [row["model"] for row in rows]
    architecture = {
        name: [min(shape[name] for shape in shapes), max(shape[name] for shape in shapes)]
        for name in ("n_layers", "n_heads", "d_model")
    }
    return {
        "format_version": FORMAT_VERSION,
        "provenance": {
            "made_by": "python examples/calibrate.py --write",
            "fit_on": f"{len(fitted)} runs: seeds {seeds(fitted)}, d_model {GROUPS['fit'][2]}, variants "
            f"{', '.join(GROUPS['fit'][3])}",
            "held_out": f"{len(rows) - len(fitted)} runs; docs/verdict.md says how they came out",
            "versions": library_versions(),
        },
        "architecture": {"variant": sorted({shape["variant"] for shape in shapes}), **architecture},
        "final": fit_final(fitted),
        "early": fit_early(fitted),
    }


def seeds(rows: Sequence[Row]) -> str:
    """Which seeds."""
    return ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))


def main() -> None:
    """Read the command line, train, measure, fit, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--write", action="store_true", help="replace the calibration of the package")
    parser.add_argument("--json", type=Path, help="file for the verdict on every run")
    parser.add_argument("--no-training", action="store_true", help="go by the runs that are there")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    runs = zoo()
    if not given.no_training:
        train_zoo(runs, given.out)
    rows = measure_zoo(runs, given.out)
    calibrated = content(rows)
    if given.write:
        PACKAGED.write_text(json.dumps(calibrated, indent=1) + "\n")
    found = verdicts(rows, LogisticModel.from_dict(calibrated["final"]))
    early = {moment: LogisticModel.from_dict(fit) for moment, fit in calibrated["early"].items()}
    console = Console(width=200)
    tables = (
        accuracy_table(found),
        confusion_table(found),
        ablation_table(rows),
        early_table(rows, early),
    )
    for table in tables:
        console.print(table)
    if given.json:
        given.json.write_text(json.dumps({"runs": rows, "verdicts": found}))


if __name__ == "__main__":
    main()
