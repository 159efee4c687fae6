"""Fit the mechanism verdict on the zoo's table, and measure it on what was held out.

    python research/calibrate.py [--table research/calibration/zoo.parquet] [--write]

A minute or two: `research/zoo.py` trained and measured the models. --write replaces the calibration of the
package, the tables of docs/verdict.md and its picture. Held out are seeds 6 to 8 altogether, two widths, a
depth, a variant and a learning rate; nothing was chosen on them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import anchorlens
from anchorlens.files.checkpoint import library_versions
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.calibration import FORMAT_VERSION, from_dict
from calibration import held_out, page, tables
from calibration.curve import selective_curve
from calibration.fit import (
    BY_DECODING,
    BY_PROBES,
    QUESTIONS,
    fit,
    left_out,
    of_early,
    of_trained,
    widening_of,
)
from calibration.runs import MOMENTS
from zoo import TABLE

PACKAGED = Path(anchorlens.__file__).parent / "verdict/calibration.json"
DOCS = Path(__file__).parents[1] / "docs"
UNNAMED = 0.1
"""Share of the models that a verdict may leave undecided where that buys accuracy."""
NUMBERS = ("n_layers", "n_heads", "d_model")


def content(zoo: Any) -> tuple[dict[str, Any], dict[str, list[held_out.Said]]]:
    """The calibration as JSON data; and of both verdicts, what each run that is fit on gets without its seed.

    Args:
        zoo: the whole table.
    """
    fitted = zoo[zoo["group"] == "fit"]
    ends = fitted[fitted["moment"] == 1].reset_index(drop=True)
    ways = {"by_decoding": BY_DECODING, "by_probes": BY_PROBES}
    models, said = {}, {}
    for name, readings in ways.items():
        evidence = of_trained(ends, readings)
        probabilities = left_out(ends, evidence)
        least = least_probability(held_out.said_of(ends, probabilities, 0))
        models[name] = {"least_probability": least, **fit(ends, evidence)}
        said[name] = held_out.said_of(ends, probabilities, least)
    early = {}
    for moment in (one for one in MOMENTS if one < 1):
        rows = fitted[fitted["moment"] == moment].reset_index(drop=True)
        early[str(moment)] = fit(rows, of_early(rows), tuple(QUESTIONS))
    calibrated = {
        "format_version": FORMAT_VERSION,
        "provenance": {
            "made_by": "python research/calibrate.py --write",
            "fit_on": f"{len(ends)} runs, {int(ends['label'].isin(LABELS).sum())} of them with a phase",
            "held_out": f"{zoo['name'].nunique() - len(ends)} runs; docs/verdict.md says how they came out",
            "versions": library_versions(),
        },
        "architecture": {
            "variant": sorted(ends["variant"].unique().tolist()),
            **{name: [int(ends[name].min()), int(ends[name].max())] for name in NUMBERS},
        },
        "widening": widening_of(ends, BY_DECODING),
        **models,
        "early": early,
    }
    return calibrated, said


def least_probability(said: list[held_out.Said]) -> float:
    """The least probability that leaves no more than `UNNAMED` of the left-out runs undecided, .5 or more."""
    return round(max(0.5, float(np.quantile([one.sure for one in said], UNNAMED))), 2)


def main() -> None:
    """Read the command line, fit, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument(
        "--write", action="store_true", help="replace the calibration, and the page's tables and picture"
    )
    given = parser.parse_args()
    zoo = pd.read_parquet(given.table)
    calibrated, left = content(zoo)
    said, found = said_and_tables(zoo, calibrated, left)
    console = Console(width=220)
    for name, table in found.items():
        table.title = name
        console.print(table)
    if given.write:
        PACKAGED.write_text(json.dumps(calibrated, indent=1) + "\n")
        page.update(DOCS / "verdict.md", found)
        selective_curve(said).write_image(DOCS / "images/selective.png", scale=2)


def said_and_tables(
    zoo: Any, calibrated: dict[str, Any], left: dict[str, list[held_out.Said]]
) -> tuple[dict[str, list[held_out.Said]], dict[str, Table]]:
    """What both verdicts say of each run, and the tables of the page by their names."""
    model = from_dict(calibrated)
    ends = zoo[zoo["moment"] == 1].reset_index(drop=True)
    spread = held_out.temperature(ends, model)
    decoding, probes = (held_out.verdicts(ends, one, spread) for one in (model.by_decoding, model.by_probes))
    said = {"by what it decodes": decoding, "by the probes": probes}
    hits = held_out.early_hits(zoo, model.early)
    found = {
        "runs": tables.runs_table(zoo),
        "regressions": tables.regression_table(ends),
        "weights": tables.weight_table(calibrated),
        "aims": tables.aims_table(decoding, probes, hits),
        "by what it decodes": tables.accuracy_table(decoding, left["by_decoding"]),
        "by the probes": tables.accuracy_table(probes, left["by_probes"]),
        "confusions": tables.confusion_table(decoding),
        "distances": tables.distance_table(said),
        "selective": tables.selective_table(said),
        "questions": tables.question_table(ends, calibrated),
        "early": tables.early_table(hits),
    }
    return said, found


if __name__ == "__main__":
    main()
