"""The tables of docs/verdict.md."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.mechanism import named
from anchorlens.verdict.questions import UNDECIDED
from anchorlens.verdict.readings import READINGS
from calibration.fit import (
    BY_DECODING,
    BY_PROBES,
    OF_A_TRAINED_MODEL,
    QUESTIONS,
    asked,
    fit_question,
    log_odds_of,
    of_trained,
    values_of,
)
from calibration.held_out import (
    ALL,
    SEEDS,
    UNSEEN,
    Hits,
    Said,
    by_group,
    calibration_error,
    interval,
    right_commutativity,
    share_right,
)
from calibration.runs import GROUPS
from calibration.votes import Table as Rows
from calibration.weights import BY_ACCURACY, BY_ANSWER, loss


def accuracy_table(said: Sequence[Said], left_out: Sequence[Said]) -> Table:
    """A row for each group: how many are named, and how many of them rightly.

    Args:
        said: of every run.
        left_out: of the runs that are fit on, each from a fit without its seed.
    """
    columns = ("group", "with a phase", "named", "same phase", "... not borderline")
    columns += ("commutativity, of those said", "calibration error")
    found = _table(*columns)
    for group, some in {**by_group(said), "fit": list(left_out)}.items():
        clear = [one for one in some if not one.borderline]
        found.add_row(
            "fit, each seed left out" if group == "fit" else group,
            str(len(some)),
            str(sum(one.is_named for one in some)),
            share_right(some),
            share_right(clear),
            right_commutativity(some),
            calibration_error(some),
        )
    return found


def confusion_table(said: Sequence[Said]) -> Table:
    """Behaviour as rows and the verdict as columns, of all that are held out."""
    held_out = by_group(said)[ALL]
    columns = (*LABELS, "Phase 2", UNDECIDED)
    found = _table("behaviour / mechanism", *columns)
    for label in LABELS:
        names = [named(one.probabilities, one.least) for one in held_out if one.behaviour == label]
        counted = [UNDECIDED if phase.number is None else phase.label for phase in names]
        found.add_row(label, *(str(counted.count(column)) for column in columns))
    return found


def selective_table(said: Mapping[str, Sequence[Said]]) -> Table:
    """Accuracy where only the surest share of the held-out models is named."""
    shares = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
    found = _table("named", *said)
    for share in shares:
        cells = []
        for some in said.values():
            held_out = sorted(by_group(some)[ALL], key=lambda one: -one.sure)
            chosen = held_out[: round(share * len(held_out))]
            cells.append(interval(sum(one.right for one in chosen), len(chosen)))
        found.add_row(f"{share:.0%}", *cells)
    return found


def regression_table(rows: Rows) -> Table:
    """What fits without a seed leave to be known of its runs, by what the weights are fit to."""
    fitted = rows[rows["group"] == "fit"].reset_index(drop=True)
    ways = {"accuracy": BY_ACCURACY, "answer": BY_ANSWER}
    found = _table("question", "by", *(f"the {name} is regressed" for name in ways))
    for name, readings in (("probes", BY_PROBES), ("decoding", BY_DECODING)):
        evidence = of_trained(fitted, readings)
        for which in OF_A_TRAINED_MODEL:
            of, yes = asked(fitted, which)
            left = [
                fit_question(fitted, replace(evidence, regression=way), which)[1] for way in ways.values()
            ]
            found.add_row(which, f"by {name}", *(f"{loss(one[of], yes[of]):.3f}" for one in left))
    return found


def distance_table(said: Mapping[str, Sequence[Said]]) -> Table:
    """How many are named rightly of those that are near to a threshold, and of those that are far from it."""
    edges = (0.0, 0.1, 0.2, 0.3, 1.0)
    found = _table("OOD (of Phase 1: ID) is from its threshold", "runs", *said)
    for low, high in itertools.pairwise(edges):
        some = [[one for one in by_group(each)[ALL] if low <= one.distance < high] for each in said.values()]
        title = f"{low:.1f} to {high:.1f}" if high < 1 else f"{low:.1f} or more"
        found.add_row(title, str(len(some[0])), *(share_right(one) for one in some))
    return found


def question_table(rows: Rows, content: Mapping[str, Any]) -> Table:
    """Each question by itself on what is held out: both verdicts, and boosted trees as an upper bound."""
    fitted, others = rows[rows["group"] == "fit"], rows[rows["group"] != "fit"]
    found = _table("question", "by", "runs", "answered rightly", "area under the curve")
    for which in OF_A_TRAINED_MODEL:
        of, yes = QUESTIONS[which].of, QUESTIONS[which].yes
        train, test = fitted[np.asarray(of(fitted), bool)], others[np.asarray(of(others), bool)]
        if not len(test):
            continue
        expected = np.asarray(yes(test), float)
        ways: dict[str, np.ndarray] = {}
        for name, readings in (("by_probes", BY_PROBES), ("by_decoding", BY_DECODING)):
            ways[name] = log_odds_of(values_of(test, readings), content[name]["questions"][which])
        for name, readings in (("trees, by probes", BY_PROBES), ("trees, by decoding", BY_DECODING)):
            trees = HistGradientBoostingClassifier(max_iter=200, learning_rate=0.05, max_leaf_nodes=8)
            trees.fit(values_of(train, readings), np.asarray(yes(train), int))
            probability = trees.predict_proba(values_of(test, readings))[:, 1].clip(1e-6, 1 - 1e-6)
            ways[name] = np.log(probability / (1 - probability))
        for name, log_odds in ways.items():
            area = f"{roc_auc_score(expected, log_odds):.3f}" if len(set(expected)) == 2 else "-"
            hits = int(((log_odds > 0) == expected).sum())
            found.add_row(which, name.replace("_", " "), str(len(test)), interval(hits, len(test)), area)
    return found


def weight_table(content: Mapping[str, Any]) -> Table:
    """What every reading says of each question alone, and how much of it counts."""
    found = _table("reading", *(f"{which}: alone, weight" for which in OF_A_TRAINED_MODEL))
    for reading in READINGS:
        cells = []
        for which in OF_A_TRAINED_MODEL:
            vote = content["by_decoding"]["questions"][which]["votes"].get(reading.name)
            if vote is None:
                cells.append("none" if which in reading.says else "")
                continue
            most = max(abs(vote["slope"] * (vote[end] - vote["neutral"])) for end in ("low", "high"))
            cells.append(f"up to {most:.1f} nats, {vote['weight']:.2f}")
        found.add_row(reading.name, *cells)
    return found


def early_table(hits: Hits) -> Table:
    """A row for each moment and kind of runs."""
    columns = ("early verdict: same end", "the inside alone", "the behaviour then alone")
    found = _table("steps taken", "of", "runs", *columns)
    for (moment, title), (n, some) in hits.items():
        found.add_row(f"{moment:.0%}", title, str(n), *(interval(one, n) for one in some))
    return found


def aims_table(said: Sequence[Said], by_probes: Sequence[Said], hits: Hits) -> Table:
    """What was aimed at, and what came out on what is held out.

    Args:
        said: by what it decodes.
        by_probes: by the probes.
        hits: of the early verdict.
    """
    groups, everything = by_group(said), by_group(said)[ALL]
    unseen = [f"{group.removeprefix('unseen ')} {share_right(groups[group])}" for group in UNSEEN]
    surest = sorted(everything, key=lambda one: -one.sure)[: round(0.9 * len(everything))]
    n, (early, _, now) = hits[0.1, ALL]
    found = _table("", "aim", "came out (held out; 95 % interval)")
    rows = (
        ("same phase as behaviour, held-out seeds", "96 % of 300 or more", share_right(groups[SEEDS])),
        ("unseen width, depth, variant, learning rate", "92 % each", "; ".join(unseen)),
        ("by the probes alone", "88 %", share_right(by_group(by_probes)[ALL])),
        ("commutativity in Phase 2, where it is said", "92 %", right_commutativity(everything)),
        ("at 90 % named", "98 %", interval(sum(one.right for one in surest), len(surest))),
        ("calibration error", ".04", calibration_error(everything)),
        (f"forecast at 10 % of the steps (present state: {now / n:.0%})", "70 %", interval(early, n)),
    )
    for row in rows:
        found.add_row(*row)
    return found


def runs_table(rows: Rows) -> Table:
    """How many runs there are of each group, and how many with a phase."""
    ends = rows[rows["moment"] == 1]
    found = _table("group", "drawn", "in the table", "with a phase", *LABELS)
    for name, group in GROUPS.items():
        mine = ends[ends["group"] == name]
        counts = [int((mine["label"] == label).sum()) for label in LABELS]
        found.add_row(name, *(str(n) for n in (group.n, len(mine), sum(counts), *counts)))
    return found


def _table(*columns: str) -> Table:
    """An empty Markdown table."""
    table = Table(*columns, box=box.MARKDOWN)
    for column in table.columns:
        column.overflow = "fold"
    return table
