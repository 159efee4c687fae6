"""Fit the verdicts by the inside on the zoo's table, and measure them on what was held out.

    python research/calibrate.py [--held-out] [--write]

A minute or two: `research/zoo.py` trained and measured the models. In `reasoning` the fit goes by the second
zoo; in `conflict` by the first. Without --held-out nothing of the held-out groups
is looked at, and numbers are those of fits that leave out one task at a time. --write replaces the
calibration of the package, the tables of calibration/calibration.md and docs/images/selective.png.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import anchorlens
from anchorlens.files.checkpoint import library_versions
from anchorlens.verdict.calibration import FORMAT_VERSION, Calibration
from calibration import held_out, page, tables
from calibration.curve import selective_curve
from calibration.fit import (
    BY_PROBES,
    OF_REGIME,
    fit,
    left_out,
    of_trained,
    survival_at,
)
from calibration.held_out import Said
from calibration.runs import FITTED, GROUPS, SECOND
from zoo import SECOND_TABLE, TABLE

PACKAGED = Path(anchorlens.__file__).parent / "verdict/calibration.json"
DOCS = Path(__file__).parents[1] / "docs"
PAGE = Path(__file__).parent / "calibration/calibration.md"
UNNAMED = 0.1
"""Share of the models that a verdict may leave undecided where that buys accuracy."""
NUMBERS = ("n_layers", "n_heads", "d_model", "n_anchors", "n_keys", "seq_len")
OF_EVERY_RUN = {
    "normalization": ["LN"],
    "positions": ["standard"],
    "attention": ["causal"],
    "activation": ["gelu", "relu"],
    "blocks": ["serial"],
    "mlp": ["dense"],
    "exceptions": ["none"],
}
"""What the table does not hold, as all models of the zoo have it (`gpt2`: gelu; `postnorm`: relu)."""
LeftOut = dict[str, list[Said]]
"""Regime -> what is said of each run that is fit on, by a fit without its task."""


def content(zoo: Any) -> tuple[dict[str, Any], LeftOut]:
    """The calibration as JSON data; and what the fit's own runs get without their tasks.

    Args:
        zoo: the table, of which the groups that are fit on are looked at.
    """
    fitted = zoo[zoo["group"].isin(FITTED)]
    ends = fitted[fitted["moment"] == 1].reset_index(drop=True)
    regimes: dict[str, dict[str, Any]] = {}
    said: LeftOut = {}
    for regime, questions in OF_REGIME.items():
        mine = ends[ends["regime"] == regime].reset_index(drop=True)
        evidence = of_trained(mine, BY_PROBES)
        probabilities = left_out(mine, evidence, questions)
        least = least_probability(held_out.said_of(mine, probabilities, {regime: 0.0}))
        by_probes = {"least_probability": least, **fit(mine, evidence, questions)}
        regimes[regime] = {"range": range_of(mine), "by_probes": by_probes}
        said[regime] = held_out.said_of(mine, probabilities, {regime: least})
    calibrated = {
        "format_version": FORMAT_VERSION,
        "provenance": {
            "made_by": "python research/calibrate.py --write",
            "fit_on": f"{len(ends)} runs of {ends['task'].nunique()} tasks",
            "versions": library_versions(),
        },
        "regimes": regimes,
    }
    return calibrated, said


def range_of(rows: Any) -> dict[str, Any]:
    """The calibration range of some runs, as JSON data."""
    known = {"variant": sorted(rows["variant"].unique().tolist())}
    known |= {name: [int(rows[name].min()), int(rows[name].max())] for name in NUMBERS}
    return {"known": {**known, "chain_length": [2, 2], **OF_EVERY_RUN}}


def least_probability(said: Sequence[Said]) -> float:
    """The least probability that leaves no more than `UNNAMED` of the left-out runs undecided, .5 or more."""
    least = float(np.quantile([one.sure for one in said], UNNAMED))
    return max(0.5, math.floor(100 * least) / 100)  # down, as rounding up may leave many more undecided


def both_zoos(first: Any, second: Any) -> Any:
    """The rows that the verdicts go by: in `reasoning` the ends of the second zoo, else those of the first.

    Of the second zoo the groups that it is fit on, and those held out that it brings.
    """
    first = first[first["regime"] == "conflict"]
    second = second[(second["regime"] == "reasoning") & second["group"].isin([*FITTED, *SECOND])]
    second = second.assign(**{"survival.survival": survival_at(second)})
    return pd.concat([first[first["group"].isin(GROUPS)], second], ignore_index=True)


def main() -> None:
    """Read the command line, fit, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--held-out", action="store_true", help="open the held-out groups")
    parser.add_argument("--write", action="store_true", help="replace the calibration, tables and picture")
    given = parser.parse_args()
    zoo = both_zoos(pd.read_parquet(TABLE), pd.read_parquet(SECOND_TABLE))
    if not given.held_out:
        zoo = zoo[zoo["group"].isin(FITTED)]
    elif any((zoo["group"] == name).sum() < group.n for name, group in SECOND.items() if name not in FITTED):
        parser.error("the held-out groups are opened when all of their runs are trained; train the rest")
    calibrated, left = content(zoo)
    said, found = said_and_tables(zoo, calibrated, left)
    console = Console(width=220)
    for name, table in found.items():
        table.title = name
        console.print(table)
    if given.write:
        PACKAGED.write_text(json.dumps(calibrated, indent=1) + "\n")
        page.update(PAGE, found)
        selective_curve(said).write_image(DOCS / "images/selective.png", scale=2)


def said_and_tables(
    zoo: Any, calibrated: dict[str, Any], left: LeftOut
) -> tuple[dict[str, list[Said]], dict[str, Table]]:
    """What the verdicts say of each run in `reasoning`, and the tables of the page by their names."""
    model = Calibration.from_dict(calibrated)
    ends = zoo[zoo["moment"] == 1].reset_index(drop=True)
    fitted = ends[ends["group"].isin(FITTED)].reset_index(drop=True)
    said: dict[str, list[Said]] = {}
    for regime in OF_REGIME:
        mine = ends[ends["regime"] == regime].reset_index(drop=True)
        spread = held_out.distances(mine, model.regimes[regime].range)
        said[regime] = held_out.verdicts(mine, {regime: model.regimes[regime].by_probes}, spread)
    held = [one for one in said["reasoning"] if held_out.is_held_out(one.group)]
    of_all = {"by the probes": held or left["reasoning"]}  # not opened: of the fit's own runs, without tasks
    found = {
        "runs": tables.runs_table(zoo),
        "readings": tables.readings_table(fitted),
        "fits": tables.fits_table(fitted),
        "weights": tables.weights_table(calibrated),
        "context": tables.context_table(fitted),
        "aims": tables.aims_table(said["reasoning"], left["reasoning"], held_out.by_hyperparameters(ends)),
        **{
            name: tables.accuracy_table(said[regime], left[regime], of_phases=regime == "reasoning")
            for name, regime in (("by the probes", "reasoning"), ("conflict by the probes", "conflict"))
        },
        "hyperparameters": tables.beside_hyperparameters(
            said["reasoning"], held_out.by_hyperparameters(ends)
        ),
        "confusions": tables.confusion_table(of_all["by the probes"]),
        "distances": tables.distance_table(of_all),
        "ties": tables.tie_table(said["reasoning"]),
        "costly": tables.costly_table(ends, model),
    }
    return of_all, found


if __name__ == "__main__":
    main()
