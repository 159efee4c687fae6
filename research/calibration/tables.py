"""The tables of calibration.md."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from sklearn.linear_model import LinearRegression

from anchorlens.tasks.shared.phases import FIT_THRESHOLD, LABELS
from anchorlens.verdict.calibration import SOLUTIONS, Calibration, Regime
from anchorlens.verdict.explanation import TIE
from anchorlens.verdict.readings import COSTLY, READINGS
from calibration.compared import area, log_odds_of_each, mean_loss
from calibration.fit import BY_PROBES, OF_REGIME, UNDECIDED, asked, given, label_of, values_of
from calibration.held_out import (
    ALL,
    Said,
    by_group,
    calibration_error,
    distances,
    is_held_out,
    models_of,
    needed,
    resampled,
    right_commutativity,
    share,
    share_assigned,
    share_right,
    verdicts,
)
from calibration.runs import FITTED, GROUPS, SECOND
from calibration.votes import Table as Rows

CONTEXT = ["n_anchors", "n_keys", "seq_len", "d_model", "n_layers"]
"""What should not show in a reading."""
LEAST_RUNS = 10
"""Of fewer runs, the probes and hyperparameters are not compared."""
TITLES = {
    "held-out kind": "held-out function kind",
    "held-out anchors": "7 and 8 anchors",
    "beyond: depth": "depth 8",
    "beyond: learning rate": "learning rate 1e-4",
    "beyond: width": "width 512",
    "second: papers": "papers' task, longer training",
    "second: anchors": "6 to 8 anchors",
    "second: tables": "affine functions and permutations",
    "second: released": "variant `released`",
    "second: shapes": "other depths and widths",
    "second, held-out: papers": "held out: papers' task",
    "second, held-out: anchors": "held out: 6 to 8 anchors",
    "second, held-out: tables": "held out: affine functions and permutations",
    "second, held-out: released": "held out: variant `released`",
    "second, held-out: shapes": "held out: other depths and widths",
    "second, held-out: tasks": "held out: other tasks",
}
"""Group -> its name in the tables, where it is not that of the group."""


def runs_table(rows: Rows) -> Table:
    """How many runs there are of each group, and what they came to."""
    ends = rows[rows["moment"] == 1]
    found = ends.apply(label_of, axis=1)
    columns = (*LABELS[:3], "Phase 2, order matters", LABELS[3], *SOLUTIONS, UNDECIDED)
    table = markdown_table("group", "runs", *columns)
    for name in (*GROUPS, *SECOND):
        mine = found[ends["group"] == name]
        counts = [int((mine == ("Phase 2" if "order" in label else label)).sum()) for label in columns]
        table.add_row(_title(name), *map(str, (len(mine), *counts)))
    return table


def fits_table(rows: Rows) -> Table:
    """Ways of fitting, each on the runs that are fit on: area under the curve and loss on tasks left out."""
    questions: list[tuple[str, Any]] = [(regime, which) for regime, of in OF_REGIME.items() for which in of]
    columns, cells = [], {}
    for regime, which in questions:
        mine = rows[rows["regime"] == regime].reset_index(drop=True)
        of, yes = asked(mine, which)
        answers = yes[of]
        if min(answers.sum(), len(answers) - answers.sum()) < 5:
            continue
        columns.append(f"{which} ({int(answers.sum())} of {len(answers)})")
        for name, log_odds in log_odds_of_each(mine, which).items():
            cells.setdefault(name, []).append(
                f"{area(answers, log_odds):.3f}, {mean_loss(answers, log_odds):.2f}"
            )
    table = markdown_table("fit", *columns)
    for name, texts in cells.items():
        table.add_row(name, *texts)
    return table


def readings_table(rows: Rows) -> Table:
    """Area under the curve of each single reading, of the runs that are fit on."""
    questions: list[tuple[str, Any]] = [
        (regime, which) for regime, of in OF_REGIME.items() for which in of[:2]
    ]
    questions.insert(2, ("reasoning", "commutative"))
    table = markdown_table("reading", "evidence", *(which for _, which in questions))
    values = values_of(rows)
    for reading in READINGS:
        if values[reading.name].isna().all():
            continue
        cells = []
        for regime, which in questions:
            of, yes = asked(rows, which)
            there = of & (rows["regime"] == regime).to_numpy() & values[reading.name].notna().to_numpy()
            enough = there.sum() > 10 and len(set(yes[there])) == 2
            cells.append(f"{area(yes[there], values[reading.name][there]):.2f}" if enough else "-")
        table.add_row(reading.name, reading.sees, *cells)
    return table


def weights_table(content: Mapping[str, Any]) -> Table:
    """The most that each reading moves the log-odds of a question, in nats, with the weights of the fit."""
    questions: list[tuple[Regime, Any]] = [
        (regime, which) for regime, of in OF_REGIME.items() for which in of
    ]
    table = markdown_table("reading", *(which for _, which in questions))
    models = [of_regime["by_probes"] for of_regime in content["regimes"].values()]
    for reading in BY_PROBES:
        if not any(model["ranges"].get(reading.name) for model in models):
            continue
        cells = []
        for regime, which in questions:
            vote = content["regimes"][regime]["by_probes"]["questions"][which]["votes"].get(reading.name)
            if vote is None:
                cells.append("")
                continue
            cells.append(f"{most_moved(vote):.1f}")
        table.add_row(reading.name, *cells)
    return table


def most_moved(vote: Mapping[str, float]) -> float:
    """The most that a reading moves the log-odds of a question, in nats, at an end of its vote's range."""
    return vote["weight"] * max(abs(vote["slope"] * (vote[end] - vote["neutral"])) for end in ("low", "high"))


def context_table(rows: Rows) -> Table:
    """How much of a reading's spread within a phase is explained by task and shape (R squared)."""
    mine = rows[rows["regime"] == "reasoning"].reset_index(drop=True)
    label, values = mine.apply(label_of, axis=1), values_of(mine, BY_PROBES)
    groups = {"Phase 2": label.str.startswith("Phase 2"), "Phase 3": label == LABELS[3]}
    table = markdown_table(
        "reading", *(f"within {name} ({int(of.sum())} runs)" for name, of in groups.items())
    )
    for name in values.dropna(axis="columns", how="all"):
        cells = []
        for of in groups.values():
            there = of & values[name].notna()
            x, y = mine[CONTEXT][there].to_numpy(float), values[name][there].to_numpy()
            cells.append(f"{_adjusted(x, y):.2f}" if len(y) > 2 * len(CONTEXT) and np.ptp(y) > 0 else "-")
        table.add_row(name, *cells)
    return table


def _adjusted(x: np.ndarray, y: np.ndarray) -> float:
    """Adjusted R squared of a linear regression, 0 at least."""
    n, k = x.shape
    return max(0.0, 1 - (1 - float(LinearRegression().fit(x, y).score(x, y))) * (n - 1) / (n - k - 1))


def accuracy_table(said: Sequence[Said], left_out: Sequence[Said], *, of_phases: bool) -> Table:
    """A row for each group: how many runs are classified, and how many of them correctly.

    Args:
        said: of every run.
        left_out: of the runs that are fit on, each from a fit without its task.
        of_phases: whether they are phases; else solutions.
    """
    columns = ["group", "runs", "classified", "correct", "correct without borderline runs"]
    columns += ["commutativity correct"] if of_phases else []
    table = markdown_table(*columns, "calibration error")
    for group, some in by_group(said).items():
        mine = [one for one in left_out if one.group == group] or some
        name = f"{_title(group)}, leave-one-task-out" if mine is not some else _title(group)
        if not mine:
            continue
        clear = [one for one in mine if not one.borderline]
        cells = [
            str(len(mine)),
            str(sum(one.is_named for one in mine)),
            share_right(mine),
            share_right(clear),
        ]
        cells += [right_commutativity(mine)] if of_phases else []
        table.add_row(name, *cells, calibration_error(mine))
    return table


def confusion_table(said: Sequence[Said]) -> Table:
    """Behaviour as rows and the verdict by the probes as columns, phases alone."""
    table = markdown_table("behaviour / by the probes", "Phase 1", "Phase 2", "Phase 3", UNDECIDED)
    for number in (1, 2, 3):
        mine = [one for one in said if one.truth.startswith(f"Phase {number}")]
        names = [max(one.ends, key=one.ends.__getitem__) if one.is_named else UNDECIDED for one in mine]
        table.add_row(f"Phase {number}", *(str(names.count(column)) for column in (1, 2, 3, UNDECIDED)))
    return table


def tie_table(said: Sequence[Said]) -> Table:
    """How often a classified run's phase is correct though another is more than half as probable."""
    near = [one for one in said if one.is_named and one.sure < TIE * sorted(one.ends.values())[-2]]
    table = markdown_table("runs", "classified with a close second", "correct")
    parts = {
        "fit": [one for one in near if one.group in FITTED],
        ALL: [one for one in near if is_held_out(one.group)],
        "all": near,
    }
    for name, some in parts.items():
        table.add_row(name, str(len(some)), share(some))
    return table


def costly_table(rows: Rows, fitted: Calibration) -> Table:
    """What the probe verdict is worth with the costly probes, which is the default, and without (`--quick`).

    Args:
        rows: of runs at their end, one each, of which those held out are asked; all where none is.
        fitted: the verdicts.
    """
    columns = ("assigned", "correct, of the assigned", "correct, of all", "AUC of Phase 3 against 2")
    table = markdown_table("regime", "costly probes", "runs", *columns, "runs with `survival`")
    some = rows[[is_held_out(group) for group in rows["group"]]]
    rows = (rows if some.empty else some)[lambda of: of["train"] >= FIT_THRESHOLD]
    for regime, of_regime in fitted.regimes.items():
        mine = rows[rows["regime"] == regime].reset_index(drop=True)
        spread, model = distances(mine, of_regime.range), of_regime.by_probes
        readings = [given(row) for _, row in values_of(mine).iterrows()]
        of_each = models_of(mine, {regime: model})
        applied = [needed(*one) for one in zip(of_each, readings, spread, strict=True)]
        n_slow = sum("survival" in probes for probes in applied)
        for title, costly in (("measured", COSTLY), ("left out", ())):
            said = verdicts(mine, {regime: model}, spread, costly=costly)
            named = sum(one.is_named for one in said)
            area = composes_area(said) if regime == "reasoning" else "-"
            slow = f"{n_slow if costly else 0} of {len(mine)}" if regime == "reasoning" else "-"
            table.add_row(
                regime, title, str(len(said)), str(named), share_right(said), share(said), area, slow
            )
    return table


def distance_table(said: Mapping[str, Sequence[Said]]) -> Table:
    """How many are right, named or not, of those near to a threshold and of those far from it."""
    edges = (0.0, 0.1, 0.2, 0.3, 1.0)
    table = markdown_table("distance of OOD (Phase 1: ID) from its threshold", *said)
    for low, high in itertools.pairwise(edges):
        title = f"{low:.1f} to {high:.1f}" if high < 1 else f"{low:.1f} or more"
        table.add_row(
            title, *(share([one for one in some if low <= one.distance < high]) for some in said.values())
        )
    return table


def beside_hyperparameters(probes: Sequence[Said], recipes: Sequence[Said]) -> Table:
    """The probes and the hyperparameter baseline on all held-out runs that have a phase, undecided or not."""
    table = markdown_table(
        "group", "probes", "baseline", "Phase 3 against 2: probes", "Phase 3 against 2: baseline"
    )
    ways = by_group(probes), by_group(recipes)
    for name in (*(name for name in SECOND if name not in FITTED), ALL):
        mine = [of[name] for of in ways]
        if len(mine[1]) >= LEAST_RUNS:
            table.add_row(_title(name), *map(share, mine), *map(composes_area, mine))
    return table


def aims_table(said: Sequence[Said], left_out: Sequence[Said], recipes: Sequence[Said]) -> Table:
    """The aims of the second calibration, and its results on what is held out.

    Args:
        said: of every run in `reasoning`, by the probes.
        left_out: of the runs that are fit on, each from a fit without its task.
        recipes: what hyperparameters alone say of each held-out run of `said`, in its order.
    """
    table = markdown_table("held-out runs, probe verdict", "first calibration", "aim", "result")
    some, papers = (by_group(said)[name] for name in (ALL, "second, held-out: papers"))
    surest = sorted(some, key=lambda one: -one.sure)[: round(0.9 * len(some))]
    before = {id(one): recipe.right for one, recipe in zip(some, recipes, strict=True)}
    rows = [
        ("papers' task: AUC of Phase 3 against 2", "0.92", "0.95", composes_area(papers)),
        ("all: AUC of Phase 3 against 2", "0.85", "0.90", composes_area(some)),
        (
            "calibration models, leave-one-task-out: AUC of Phase 3 against 2",
            "0.68",
            "0.82",
            composes_area(left_out),
        ),
        ("all: correct phase, surest 90% of the runs", "89%", "92%", share(surest)),
        (
            "Phases 2 and 3: correct phase assigned, of all runs",
            "39 of 55",
            "80%",
            share_assigned(_of_2_or_3(some)),
        ),
        ("all: advantage over the hyperparameter baseline", "5 points", "12 points", advantage(some, before)),
        ("all: calibration error", "0.055", "0.04", calibration_error(some)),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def advantage(said: Sequence[Said], before: Mapping[int, bool]) -> str:
    """How many percentage points more of some runs are right than by hyperparameters alone."""
    if not said:
        return "-"

    def points(some: Sequence[Said]) -> float:
        return 100 * float(np.mean([int(one.right) - before[id(one)] for one in some]))

    low, high = resampled(said, points)
    return f"{points(said):.1f} points ({low:.0f} to {high:.0f})"


def _of_2_or_3(said: Sequence[Said]) -> list[Said]:
    return [one for one in said if one.truth[:7] in ("Phase 2", "Phase 3")]


def composes_area(said: Sequence[Said]) -> str:
    """Area under the curve of Phase 3 against 2, by the probability of 3 among both."""
    some = _of_2_or_3(said)
    if len({one.truth[:7] for one in some}) < 2:
        return "-"

    def number(chosen: Sequence[Said]) -> float:
        yes = np.array([one.truth == LABELS[3] for one in chosen], float)
        return area(yes, np.array([one.ends[3] / (one.ends[3] + one.ends[2]) for one in chosen]))

    low, high = resampled(some, number)
    return f"{number(some):.3f} ({low:.2f} to {high:.2f}), {len(some)} runs"


def _title(group: str) -> str:
    """The name of a group in the tables."""
    return TITLES.get(group, group)


def markdown_table(*columns: str) -> Table:
    """An empty Markdown table."""
    table = Table(*columns, box=box.MARKDOWN)
    for column in table.columns:
        column.overflow = "fold"
    return table
