"""The second fit of the verdicts in `reasoning`, and what it is worth beside the calibration that ships.

    python research/second_fit.py [--held-out] [--write] [--shipped]

Two minutes: `research/zoo.py` trained and measured the models of the second zoo. The fit goes by the runs of
`SECOND_FITTED`. Without --held-out nothing of the held-out groups is looked at. --write stores the fit in
research/calibration/second_fit.json, and the tables in docs/calibration.md. --shipped prints what the stored
fit says of the shipped checkpoints instead, which takes some minutes. The rules stand in
research/calibration/README.md, under *The second zoo*.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from anchorlens import load_checkpoint
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.training import checkpoints
from anchorlens.verdict.calibration import Calibration, calibration
from anchorlens.verdict.inside import by_phase, features
from anchorlens.verdict.question_model import UNDECIDED, QuestionModel
from anchorlens.verdict.readings import COSTLY_READINGS, take_readings
from calibrate import DOCS, WAYS, known_of, of_regime
from calibration import held_out, page, tables
from calibration.compared import area, ends_by_hyperparameters
from calibration.fit import OF_REGIME, asked, label_of, survival_at, values_of
from calibration.held_out import ALL, Said
from calibration.runs import SECOND, SECOND_FITTED
from zoo import SECOND_TABLE

LEAST_UPDATES = 80
"""Mean updates until the other pairs are back, from which no larger dose of `survival` is taken."""
DIRECTIONS: Mapping[str, Mapping[Any, Any]] = {
    "information_flow.margin": {},
    "gradient_sharing.sharing": {},
    "gradient_sharing.mlp_sharing": {},
    "gradient_sharing.attention_sharing": {},
    "gradient_sharing.order_blindness": {"commutative": 1},
}
"""The directions of readings that the rules for the second fit change: the margin relative to training
sequences and `holdout` replace the margin, and readings of gradients did not enter *composes*."""
SECOND_WAYS = {
    name: tuple(replace(one, directions=DIRECTIONS.get(one.name, one.directions)) for one in readings)
    for name, readings in WAYS.items()
}
STORED = SECOND_TABLE.with_name("second_fit.json")
PAPERS_HELD_OUT = "second, held-out: papers"
TITLES = {
    PAPERS_HELD_OUT: "papers' task",
    "second, held-out: anchors": "6 to 8 anchors",
    "second, held-out: tables": "affine functions and permutations",
    "second, held-out: released": "variant `released`",
    "second, held-out: shapes": "other depths and widths",
    "second, held-out: tasks": "other tasks",
    ALL: "all held out",
}


def rows_of(table: Any, groups: Sequence[str]) -> Any:
    """The runs of some groups in `reasoning`, with `survival` at its dose."""
    some = table[(table["regime"] == "reasoning") & table["group"].isin(groups)].reset_index(drop=True)
    return some.assign(**{"survival.survival": survival_at(some, LEAST_UPDATES)})


def second_fit(rows: Any) -> tuple[dict[str, Any], dict[str, list[Said]]]:
    """The fit as JSON data, as a calibration without an early verdict; and what runs get without their task.

    Args:
        rows: of the runs that are fit on.
    """
    fitted, said = of_regime(rows, "reasoning", SECOND_WAYS)
    about = {
        "made_by": "python research/second_fit.py --write",
        "fit_on": f"{len(rows)} runs of {rows['task'].nunique()} tasks",
    }
    content = {"regimes": {"reasoning": fitted}, "early": {}, "known": known_of(rows), "provenance": about}
    return content, {way: [replace(one, not_quite_fit=False) for one in some] for way, some in said.items()}


def said_by(fitted: Calibration, way: str, rows: Any) -> list[Said]:
    """What one of the verdicts of a calibration says of runs."""
    model: QuestionModel = getattr(fitted.regimes["reasoning"], way)
    return held_out.verdicts(rows, {"reasoning": model}, held_out.distances(rows, fitted))


def second_said(fitted: Calibration, way: str, rows: Any) -> list[Said]:
    """What the second fit says, which has no rule on models that have not quite fit their data."""
    return [replace(one, not_quite_fit=False) for one in said_by(fitted, way, rows)]


def found_tables(
    fitted: Any, asked: Any, content: Mapping[str, Any], left: Mapping[str, Any]
) -> dict[str, Table]:
    """The tables of the page.

    Args:
        fitted: the runs that are fit on.
        asked: the runs that are held out; those that are fit on, where nothing is opened.
        content: the fit as JSON data.
        left: what is said of each run that is fit on, by a fit without its task.
    """
    second, first = Calibration.from_dict(dict(content)), calibration()
    new, old = (
        {way: says(of, way, asked) for way in WAYS} for says, of in ((second_said, second), (said_by, first))
    )
    has_phase = [[label_of(row) != UNDECIDED for _, row in rows.iterrows()] for rows in (fitted, asked)]
    before = held_out.said_of(asked, ends_by_hyperparameters(fitted[has_phase[0]], asked), {"reasoning": 0.0})
    return {
        "aims": aims_table(new["by_probes"], old["by_probes"], before, left["by_probes"]),
        "groups": groups_table(new, old, before),
        "confusions": tables.confusion_table(new["by_probes"]),
        "readings": readings_table(fitted),
        "weights": weights_table(content),
    }


def aims_table(
    new: Sequence[Said], old: Sequence[Said], before: Sequence[Said], left: Sequence[Said]
) -> Table:
    """The aims, the results of the second fit, and those of the calibration that ships on the same runs."""
    table = tables.markdown_table("held-out runs, probe verdict", "aim", "second fit", "shipped calibration")

    def papers(said: Sequence[Said]) -> list[Said]:
        return [one for one in said if one.group == PAPERS_HELD_OUT]

    both = (new, old)
    rows = [
        ("papers' task: AUC of Phase 3 against 2", "0.95", *(tables.composes_area(papers(s)) for s in both)),
        ("all: AUC of Phase 3 against 2", "0.90", *map(tables.composes_area, both)),
        ("fit, leave-one-task-out: AUC of Phase 3 against 2", "0.82", tables.composes_area(left), "-"),
        ("all: correct phase, surest 90% of the runs", "92%", *(held_out.share(surest(s)) for s in both)),
        ("Phases 2 and 3: correct phase, of all runs", "80%", *(assigned(of_2_or_3(s)) for s in both)),
        ("all: correct phase, undecided or not", "-", *map(held_out.share, both)),
        ("all: hyperparameter baseline", "-", held_out.share(before), held_out.share(before)),
        ("all: advantage over the baseline", "12 points", *(advantage(s, before) for s in both)),
        ("all: calibration error", "0.04", *map(held_out.calibration_error, both)),
        ("second fit correct more often, all runs", "-", advantage(new, old), "-"),
        (
            "second fit correct more often, Phases 2 and 3",
            "-",
            advantage(of_2_or_3(new), of_2_or_3(old)),
            "-",
        ),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def surest(said: Sequence[Said]) -> list[Said]:
    """Nine tenths of some runs, the surest."""
    return sorted(said, key=lambda one: -one.sure)[: round(0.9 * len(said))]


def of_2_or_3(said: Sequence[Said]) -> list[Said]:
    """Runs in Phase 2 or 3."""
    return [one for one in said if not one.truth.startswith("Phase 1")]


def assigned(said: Sequence[Said]) -> str:
    """Of all, how many are named, and rightly."""
    hits = [one.is_named and one.right for one in said]
    return f"{np.mean(hits):.1%}, {sum(hits)} of {len(hits)}" if said else "-"


def advantage(said: Sequence[Said], before: Sequence[Said]) -> str:
    """How many percentage points more of some runs one way has right than another, with its interval."""
    if not said:
        return "-"
    gains = {id(one): int(one.right) - int(other.right) for one, other in zip(said, before, strict=True)}

    def points(some: Sequence[Said]) -> float:
        return 100 * float(np.mean([gains[id(one)] for one in some]))

    low, high = held_out.resampled(said, points)
    return f"{points(said):.1f} points ({low:.1f} to {high:.1f})"


def groups_table(new: Mapping[str, Any], old: Mapping[str, Any], before: Sequence[Said]) -> Table:
    """A row for each group: how many runs are classified, and how many of them rightly, by either fit."""
    table = tables.markdown_table(
        "held-out group", "runs", "second fit", "shipped calibration", "second fit, decoding", "baseline"
    )
    for group, title in TITLES.items():

        def mine(said: Sequence[Said], group: str = group) -> list[Said]:
            return [one for one in said if group in (ALL, one.group)]

        if some := mine(before):
            ways = (new["by_probes"], old["by_probes"], new["by_decoding"])
            table.add_row(
                title,
                str(len(some)),
                *(held_out.share_right(mine(said)) for said in ways),
                held_out.share(some),
            )
    return table


def readings_table(fitted: Any) -> Table:
    """Area under the curve of each reading by itself, of the runs that are fit on."""
    questions = OF_REGIME["reasoning"]
    table, values = tables.markdown_table("reading", *questions), values_of(fitted)
    for reading in SECOND_WAYS["by_probes"]:
        cells = []
        for which in questions:
            of, yes = asked(fitted, which)
            there = of & values[reading.name].notna().to_numpy()
            enough = len(set(yes[there])) == 2
            cells.append(f"{area(yes[there], values[reading.name][there]):.2f}" if enough else "-")
        table.add_row(reading.name, *cells)
    return table


def weights_table(content: Mapping[str, Any]) -> Table:
    """The most that each reading moves the log-odds of a question, in nats; readings that move any by .05."""
    questions = content["regimes"]["reasoning"]["by_probes"]["questions"]
    table = tables.markdown_table("reading", *questions)
    for reading in SECOND_WAYS["by_probes"]:
        votes = [of["votes"].get(reading.name) for of in questions.values()]
        most = [tables.most_moved(vote) if vote else 0.0 for vote in votes]
        if max(most) >= 0.05:
            table.add_row(reading.name, *(f"{nats:.1f}" if nats else "" for nats in most))
    return table


def composing_as_phase_1(fitted: Calibration, rows: Any) -> list[str]:
    """Runs that compose, with train .90 to .97, that the probe verdict of a fit calls Phase 1."""
    some = rows[rows["train"].between(0.90, 0.97) & (rows["id"] >= 0.9)]
    some = some[[label_of(row) == LABELS[3] for _, row in some.iterrows()]].reset_index(drop=True)
    said = second_said(fitted, "by_probes", some)
    return [
        name for name, one in zip(some["name"], said, strict=True) if one.is_named and one.ends[1] == one.sure
    ]


def said_of_shipped(fitted: Calibration) -> Iterator[tuple[str, dict[Any, float], dict[str, float | None]]]:
    """What a fit says of each shipped checkpoint by the probes: name, probabilities, costly readings."""
    by_probes = fitted.regimes["reasoning"].by_probes
    for path in checkpoints.shipped():
        checkpoint = load_checkpoint(path)
        model, task = checkpoint.build_model(), checkpoint.task
        values = take_readings(model, task, training_set=checkpoint.training_set())
        probabilities = by_probes.probabilities(values, fitted.distance(features(model, task)))
        yield path.stem, by_phase(probabilities), {name: values.get(name) for name in COSTLY_READINGS}


def main() -> None:
    """Read the command line, fit, print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--held-out", action="store_true", help="open the held-out groups")
    parser.add_argument("--write", action="store_true", help="replace the stored fit and the page's tables")
    parser.add_argument("--shipped", action="store_true", help="classify the shipped checkpoints")
    given = parser.parse_args()
    if given.shipped:
        for name, probabilities, costly in said_of_shipped(Calibration.from_json(STORED.read_bytes())):
            print(name, *(f"Phase {phase}: {each:.0%}" for phase, each in probabilities.items()))
            print("   ", *(f"{reading} {value}" for reading, value in costly.items()))
        return
    table = pd.read_parquet(SECOND_TABLE)
    fitted = rows_of(table, SECOND_FITTED)
    new = [name for name in SECOND if name not in SECOND_FITTED]
    if given.held_out and any((table["group"] == name).sum() < SECOND[name].n for name in new):
        parser.error(
            "the held-out groups are opened when all of their runs are trained; train the rest first"
        )
    asked = rows_of(table, new) if given.held_out else fitted
    content, left = second_fit(fitted)
    found = found_tables(fitted, asked, content, left)
    console = Console(width=220)
    for name, one in found.items():
        one.title = name
        console.print(one)
    rows = pd.concat([fitted, asked]) if given.held_out else fitted
    print("composing, called Phase 1:", composing_as_phase_1(Calibration.from_dict(content), rows))
    if given.write:
        STORED.write_text(json.dumps(content, indent=1) + "\n")
        page.update(DOCS / "calibration.md", found, mark="second fit")


if __name__ == "__main__":
    main()
