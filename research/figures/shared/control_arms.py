"""What the figures k1 to k8 and g1 to g3 share: arms, a claim's number over seeds, and its verdict.

An arm is a name and the fields that it changes in the setting; the seeds of all arms are one sweep, and an
arm that two figures have is trained once. Claims stand in `claims/control_claims.toml`, which was written
first; those on grokking in `claims/grokking_claims.toml`.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go

from anchorlens import TrainResult, plots, probes, train_many
from anchorlens.extras.sweep.cells import cell_ids
from anchorlens.probes import apply
from anchorlens.recipes.run_config import RunConfig
from shared.common import add_means, network, options, runs, write
from shared.numerals import interval

SETTING: Mapping[str, Any] = {
    "d_model": 64,
    "d_mlp": 128,
    "lr": 2e-3,
    "n_samples": 6720,
    "batch_size": 256,
    "steps": 1000,
    "n_checkpoints": 0,
    "eval_every": 1000,
    "weight_decay": 0.01,
}
"""`quick` at half its width: six times as many sequences as (pair, key), a minute of one core."""
SEEDS = (0, 1, 2)
CLAIMS = Path(__file__).parents[1] / "claims/control_claims.toml"
GROKKING_CLAIMS = CLAIMS.with_name("grokking_claims.toml")
MEASURED = ("train", "id", "ood", "commutativity", "label", "weight_norm")
"""What a row has of each cell, beside what a figure adds."""
IS_FIT = 0.99
"""Train accuracy from which a run has fit its data."""

Row = Mapping[str, Any]


class Found(NamedTuple):
    """A claim's number over the seeds."""

    values: Mapping[int, float]
    """Seed -> number; seeds without one are left out."""
    mean: float | None
    interval: tuple[float, float] | None
    """Of the mean, 95 %, Student's t; None with fewer than two seeds."""
    verdict: str
    """confirmed, refuted, undecided or not tested."""


def measured(
    given: argparse.Namespace,
    arms: Mapping[str, Mapping[str, Any]],
    *,
    readings: Sequence[str] = (),
    setting: Mapping[str, Any] = SETTING,
    also: Callable[[TrainResult], Mapping[str, Any]] = lambda result: {},
) -> list[dict[str, Any]]:
    """Train what is missing of every arm and seed, and give a row for each run.

    Args:
        given: the command line.
        arms: name -> fields that it changes.
        readings: numbers of probes that a row has too, "stable_rank.w_q" for example.
        setting: what all arms change in the preset.
        also: of a run, what its row has besides.
    """
    wanted = [run for fields in arms.values() for run in runs(given, {}, **{**setting, **fields})]
    vars(given)["network"] = network(wanted)
    names = [name for name in arms for _ in given.seed]
    results = trained_alone(given, wanted)
    vars(given)["versions"] = versions_of(results)
    rows = []
    for name, run, result in zip(names, wanted, results, strict=True):
        last = result.log[-1] if result.log else {}
        numbers = {**last, **result.behaviour.headline(), **of_weights(result, readings)}
        row = {key: numbers.get(key) for key in (*MEASURED, *readings)} | dict(also(result))
        rows.append({"arm": name, "seed": run.train_config.seed, **row})
    return rows


def trained_alone(given: argparse.Namespace, wanted: Sequence[RunConfig]) -> list[TrainResult]:
    """These runs in order, each in a folder of its own in that of `--sweep`; what is there is read.

    A sweep would ask every run for its verdict too, which takes as long as the training.

    Raises:
        SystemExit: a run that diverged.
    """
    outs = [given.sweep / name for name in cell_ids(wanted)]
    results = train_many(wanted, outs=outs, resume=True)
    diverged = [out for out, result in zip(outs, results, strict=True) if result.status == "diverged"]
    if diverged:
        raise SystemExit(f"{len(diverged)} of {len(outs)} runs diverged, the first: {diverged[0]}")
    return results


def versions_of(results: Sequence[TrainResult]) -> dict[str, str]:
    """Library -> its version where the runs were trained, or the several, if machines differ."""
    each = [result.checkpoint.versions for result in results]
    return {name: ", ".join(sorted({versions[name] for versions in each})) for name in each[0]}


def of_weights(result: TrainResult, readings: Sequence[str]) -> dict[str, float]:
    """Readings of probes that need the weights alone, `probe.reading` -> value."""
    found = {}
    for probe in dict.fromkeys(name.split(".")[0] for name in readings):
        numbers = apply(getattr(probes, probe), result.model, result.checkpoint.task).numbers()
        found |= {f"{probe}.{name}": value for name, value in numbers.items()}
    return found


def command_line(doc: str | None) -> argparse.Namespace:
    """What was asked for, of a figure that has no option of its own."""
    return options(doc, seeds=SEEDS).parse_args()


def over_seeds(
    rows: Sequence[Row], number: Callable[[Callable[[str], Row]], float | None]
) -> dict[int, float]:
    """A number for each seed, from a function that is given its arms by name; None leaves the seed out."""
    found = {}
    for seed in sorted({row["seed"] for row in rows}):
        own = {row["arm"]: row for row in rows if row["seed"] == seed}
        if (value := number(own.__getitem__)) is not None:
            found[seed] = value
    return found


def best_by_others(rows: Sequence[Row], arms: Sequence[str], *, fit_alone: bool = False) -> dict[int, Row]:
    """Seed -> its row of the arm with the largest mean OOD over the other seeds.

    Args:
        rows: of all seeds.
        arms: to choose from.
        fit_alone: leave out arms in which some other seed has not fit its data, and a row that has not.
    """
    chosen = {}
    for seed in sorted({row["seed"] for row in rows}):
        means = {}
        for arm in arms:
            others = [row for row in rows if row["arm"] == arm and row["seed"] != seed]
            if others and not (fit_alone and any(row["train"] < IS_FIT for row in others)):
                means[arm] = fmean(row["ood"] for row in others)
        if not means:
            continue
        best = max(means, key=means.__getitem__)
        row = next(row for row in rows if row["arm"] == best and row["seed"] == seed)
        if not fit_alone or row["train"] >= IS_FIT:
            chosen[seed] = row
    return chosen


def chosen_by_others(
    rows: Sequence[Row], options: Mapping[str, Callable[[Callable[[str], Row]], float]]
) -> dict[int, float]:
    """Seed -> its number of the option with the largest mean over the other seeds."""
    each = {name: over_seeds(rows, number) for name, number in options.items()}
    found = {}
    for seed in sorted({row["seed"] for row in rows}):
        others = {name: [v for s, v in values.items() if s != seed] for name, values in each.items()}
        if all(others.values()):
            found[seed] = each[max(others, key=lambda name: fmean(others[name]))][seed]
    return found


def claims_of(figure: str) -> dict[str, dict[str, Any]]:
    """The claims of a figure by their names, as they were written down."""
    listed = claims_in(CLAIMS) | claims_in(GROKKING_CLAIMS)
    return {name: claim for name, claim in listed.items() if claim["figure"] == figure}


def claims_in(file: Path) -> dict[str, dict[str, Any]]:
    """The claims of a list by their names."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def judged(claim: Mapping[str, Any], values: Mapping[int, float]) -> Found:
    """Mean, interval and verdict of a claim's numbers, by the rule that stands above the claims.

    >>> claim = {"at_least": 0.1}
    >>> seeds = [0.5, 0.6, 0.5], [0, 0.01, 0], [0, 0.4, 0.1], [1]
    >>> [judged(claim, dict(enumerate(values))).verdict for values in seeds]
    ['confirmed', 'refuted', 'undecided', 'not tested']
    """
    if len(values) < 2:
        return Found(values, fmean(values.values()) if values else None, None, "not tested")
    listed = list(values.values())
    mean, (low, high) = fmean(listed), interval(listed)
    least, most = bounds(claim)
    if least <= low and high <= most:
        verdict = "confirmed"
    elif high < least or most < low:
        verdict = "refuted"
    else:
        verdict = "undecided"
    return Found(values, mean, (low, high), verdict)


def bounds(claim: Mapping[str, Any]) -> tuple[float, float]:
    """Least and largest number that keep a claim's bound."""
    if "within" in claim:
        return -claim["within"], claim["within"]
    return claim.get("at_least", -inf), claim.get("at_most", inf)


def finish(
    given: argparse.Namespace,
    figure: str,
    picture: go.Figure | Mapping[str, go.Figure],
    rows: Sequence[Row],
    numbers: Mapping[str, Mapping[int, float]],
    **more: Any,
) -> None:
    """Write a figure's picture, and its JSON with all rows and what becomes of each claim.

    Args:
        given: the command line.
        figure: name of the files.
        picture: that is drawn, or several by their names.
        rows: of every run.
        numbers: claim -> seed -> number.
        **more: what else the JSON holds.
    """
    claims = claims_of(figure)
    if set(numbers) != set(claims):
        raise ValueError(f"{figure} must answer the claims {sorted(claims)}, got {sorted(numbers)}")
    found = {name: judged(claims[name], values)._asdict() for name, values in numbers.items()}
    for name, one in found.items():
        print(name, one["verdict"], one["mean"], one["interval"])
    write(given, figure, picture, {"claims": found, **more, "runs": list(rows)})


def bars(rows: Sequence[Row], arms: Mapping[str, str], title: str) -> go.Figure:
    """OOD of arms side by side: a bar for the mean over seeds, a point for each seed; rings are ID.

    Args:
        rows: of all runs.
        arms: name -> what stands below its bar.
        title: of the picture.
    """
    figure = go.Figure()
    means = [fmean(row["ood"] for row in rows if row["arm"] == arm) for arm in arms]
    figure.add_bar(
        x=list(arms.values()), y=means, name="OOD, mean over seeds", marker_color=plots.CATEGORIES[0]
    )
    for reading, symbol, colour, name in (
        ("ood", "circle", "#222222", "OOD, a seed"),
        ("id", "circle-open", plots.CATEGORIES[1], "ID, a seed"),
    ):
        points = [(arms[row["arm"]], row[reading]) for row in rows if row["arm"] in arms]
        figure.add_scatter(
            x=[place for place, _ in points],
            y=[value for _, value in points],
            mode="markers",
            marker={"symbol": symbol, "color": colour, "size": 7},
            name=name,
        )
    figure.update_yaxes(title="accuracy", range=[-0.03, 1.03])
    figure.update_xaxes(tickangle=-40)
    return plots.styled(figure, title).update_layout(
        showlegend=True,
        margin_t=90,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": None},
    )


def lines(
    rows: Sequence[Row], groups: Mapping[str, Mapping[Any, str]], title: str, x_title: str
) -> go.Figure:
    """OOD over something: a line through the means for each group, and a point for each seed.

    Args:
        rows: of all runs.
        groups: name of a line -> place -> arm.
        title: of the picture.
        x_title: of the places.
    """
    figure = go.Figure()
    for name, places in groups.items():
        points: dict[float, list[float]] = {
            x: [row["ood"] for row in rows if row["arm"] == arm] for x, arm in places.items()
        }
        add_means(figure, name, points)
    figure.update_yaxes(title="OOD accuracy", range=[-0.03, 1.03])
    figure.update_xaxes(title=x_title)
    return plots.styled(figure, title).update_layout(showlegend=True)
