"""What the study of any torch module found: truths, labels under a rule, and how a rule does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anchorlens.probes.shared.look_up import ABOVE_CHANCE
from holdout import analysis
from holdout.any_kinds import KINDS, PLACES

Row = Mapping[str, Any]
FOLDER = Path(__file__).parent
TABLES = {"first": FOLDER / "any_first.jsonl", "second": FOLDER / "any_second.jsonl"}
"""The files of both halves, with one line of JSON for each run."""
COSTS = FOLDER / "any_costs.json"
"""The file of the seconds that the probe takes."""
LOOKED_UP = 0.1
"""How much more accurate than a look-up a model that learnt answers fresh rows."""


def rows_of(path: Path) -> list[Row]:
    """The rows of a file, which are none where it is not made yet."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


class Rule(NamedTuple):
    """How a label follows from what the probe reads."""

    memorised: float = 0.75
    learnt: float = 0.84
    sure: float = 0.94
    kept: float = 0.97
    """No label *learnt* at a ratio below `sure` with the other data below `kept`; 0 for no condition."""
    errors: float = 0.0
    """The standard errors of the copies by which a ratio must pass a bound."""
    n_seeds: int = 1
    """Seeds that must agree."""
    looks_up: bool = True
    """Whether the conditions of related rows take the label *learnt* away."""


def truth(row: Row) -> str:
    """What a run is by its behaviour.

    >>> truth({"train": 1.0, "fresh": 0.95, "fresh_chance": 0.1, "fresh_look_up": 0.9})
    'looked up'
    """
    found = analysis.truth(row)
    is_looked_up = row["fresh_look_up"] >= row["fresh"] - LOOKED_UP
    return "looked up" if found == "learnt" and is_looked_up else found


def named(seed: Row, rule: Rule) -> int:
    """The label of one seed: 1 for *learnt a rule*, -1 for *memorised*, 0 for no label.

    >>> seed = {"holdout_ratio": 0.9, "copies": [0.8, 0.9, 1.0], "others": 0.9}
    >>> seed |= {"related_ratio": 0.9, "related_left_out": 0.9, "look_up": 0.1}
    >>> named(seed, Rule()), named(seed, Rule(sure=0, kept=0)), named(seed, Rule(memorised=0.95))
    (0, 1, -1)
    """
    ratio = seed["holdout_ratio"]
    if ratio is None:
        return 0
    copies = np.array(seed["copies"])
    error = rule.errors * float(copies.std(ddof=1)) / len(copies) ** 0.5 if rule.errors else 0.0
    if ratio + error <= rule.memorised:
        return -1
    if ratio - error < rule.learnt or (ratio < rule.sure and seed["others"] < rule.kept):
        return 0
    return int(not rule.looks_up or _is_above_look_up(seed, rule.learnt))


def _is_above_look_up(seed: Row, learnt: float) -> bool:
    related, look_up = seed["related_ratio"], seed["look_up"]
    if look_up is None:
        return True
    return related is not None and related >= learnt and look_up <= seed["related_left_out"] - ABOVE_CHANCE


def labels(row: Row, rule: Rule) -> list[int]:
    """The label of every draw of `n_seeds` of the seeds of a run, which is none unless they agree."""
    each = [named(seed, rule) for seed in row["seeds"]]
    return [some[0] if len(set(some)) == 1 else 0 for some in itertools.combinations(each, rule.n_seeds)]


class Score(NamedTuple):
    """How a rule does on runs, as counts of seed-runs."""

    memorised: int
    wrong: int
    """Of the memorised, those called *learnt*."""
    called_memorised: int
    learnt: int
    right: int
    """Of the learnt, those called *learnt*."""
    missed: int
    """Of the learnt, those called *memorised*."""

    @property
    def wrong_share(self) -> float:
        """The proportion of memorised seed-runs that are called *learnt*."""
        return self.wrong / max(1, self.memorised)

    @property
    def right_share(self) -> float:
        """The proportion of learnt seed-runs that are called *learnt*."""
        return self.right / max(1, self.learnt)


def score(rows: Sequence[Row], rule: Rule) -> Score:
    """Count the labels of memorised and learnt seed-runs."""
    found = {
        which: np.array([one for row in rows if truth(row) == which for one in labels(row, rule)])
        for which in ("memorised", "learnt")
    }
    return Score(
        *(
            int(n)
            for values in found.values()
            for n in (len(values), (values == 1).sum(), (values == -1).sum())
        )
    )


def is_admitted(rows: Sequence[Row], rule: Rule) -> bool:
    """Whether at most 1 % of the memorised seed-runs are called *learnt*, and 5 % in every kind."""
    of_kinds = [score([row for row in rows if row["kind"] == kind], rule) for kind in kinds_of(rows)]
    return score(rows, rule).wrong_share <= 0.01 and all(one.wrong_share <= 0.05 for one in of_kinds)


def kinds_of(rows: Sequence[Row]) -> list[str]:
    """The kinds of rows, in the order of the plan."""
    there = {row["kind"] for row in rows}
    return [kind for kind in KINDS if kind in there]


def candidates() -> Iterator[tuple[str, list[Rule]]]:
    """The rules of the plan, from the cheapest to the most costly."""
    bounds = [round(one, 2) for one in np.arange(0.80, 0.985, 0.01)]
    conditions = [(0.0, 0.0)] + [
        (round(sure, 2), round(kept, 2))
        for sure, kept in itertools.product(np.arange(0.88, 0.985, 0.02), repeat=2)
    ]
    grid = [Rule(learnt=bound, sure=sure, kept=kept) for bound in bounds for sure, kept in conditions]
    yield "the rule as it is", [Rule()]
    yield "other bounds", grid
    yield "one standard error of the copies", [rule._replace(errors=1.0) for rule in grid]
    yield "two seeds", [rule._replace(n_seeds=2) for rule in grid]
    yield "three seeds", [rule._replace(n_seeds=3) for rule in grid]


def admitted(rows: Sequence[Row]) -> Iterator[str]:
    """How many rules of each candidate are admitted, how well the best do, and their bounds of *learnt*."""
    for name, rules in candidates():
        shares = {rule: score(rows, rule).right_share for rule in rules if is_admitted(rows, rule)}
        best = max(shares.values(), default=0.0)
        bounds = sorted({f"{rule.learnt:.2f}" for rule, share in shares.items() if share == best})
        said = f", the best {best:.3f} with {', '.join(bounds)}" if shares else ""
        yield f"{name}: {len(shares)} of {len(rules)} admitted{said}"


def auc(rows: Sequence[Row], *, of_both: bool = False) -> float | None:
    """The AUC of the ratio, memorised against learnt, over seed-runs that have a ratio.

    With `of_both` it is that of the smaller of the ratio and the ratio of related rows.
    """
    ratios = {
        which: np.array(
            [
                min(seed["holdout_ratio"], seed["related_ratio"] or 0.0) if of_both else seed["holdout_ratio"]
                for row in rows
                if truth(row) == which
                for seed in row["seeds"]
                if seed["holdout_ratio"] is not None
            ]
        )
        for which in ("memorised", "learnt")
    }
    if not all(map(len, ratios.values())):
        return None
    high, low = ratios["learnt"][:, None], ratios["memorised"]
    return float(((high > low) + 0.5 * (high == low)).mean())


class OfKind(NamedTuple):
    """What the runs of a kind are, and how the rule does on them."""

    kind: str
    runs: Mapping[str, int]
    """Truth -> number of runs."""
    ratios: Mapping[str, list[float]]
    """Truth -> ratios of all seed-runs."""
    score: Score
    changing: int
    """Runs that have two different labels with different seeds; no label is not counted."""

    @property
    def misses(self) -> list[str]:
        """The aims that the kind does not meet."""
        found = []
        if self.score.wrong > 1 and self.score.wrong_share > 0.05:
            found.append("memorised")
        if self.score.learnt and self.score.right_share < 0.85:
            found.append("learnt")
        return found


FIXED_WITH = 23
"""Runs of the first half that there were when the rule was fixed."""
RULE = Rule(learnt=0.93, sure=0.0, kept=0.0)
"""The rule of the verdict."""
OPENED_WITH: int | None = 19
"""Rows of the second half that there were when it was opened; None before it."""
TRUTHS = ("memorised", "learnt", "looked up", "between", "not fit", "close to chance")


def of_kind(rows: Sequence[Row], kind: str, rule: Rule) -> OfKind:
    """Count the runs of a kind."""
    own = [row for row in rows if row["kind"] == kind]
    by_truth = {which: [row for row in own if truth(row) == which] for which in TRUTHS}
    ratios = {
        which: [
            ratio for row in some for seed in row["seeds"] if (ratio := seed["holdout_ratio"]) is not None
        ]
        for which, some in by_truth.items()
    }
    changing = sum({1, -1} <= {named(seed, rule) for seed in row["seeds"]} for row in own)
    return OfKind(kind, {k: len(some) for k, some in by_truth.items()}, ratios, score(own, rule), changing)


def by_seed(row: Row, rule: Rule) -> str:
    """The labels of a run's seeds as letters: L for *learnt a rule*, M for *memorised*, - for none.

    >>> by_seed({"seeds": []}, Rule())
    ''
    """
    return "".join({1: "L", -1: "M", 0: "-"}[named(seed, rule)] for seed in row["seeds"])


def of_page(rule: Rule | None = None) -> dict[str, Any]:
    """What the page shows, with the rule that the verdict has."""
    rule = RULE if rule is None else rule
    first, second = (rows_of(path) for path in TABLES.values())
    second = [] if OPENED_WITH is None else second
    of_half = {"first": first, "second": second[:OPENED_WITH], "later": second[OPENED_WITH:]}
    found: dict[str, Any] = {
        half: {
            "n": ", ".join(
                str(sum(truth(row) == which for row in rows)) for which in ("memorised", "learnt")
            ),
            "wrong": _of(counts.wrong, counts.memorised),
            "right": _of(counts.right, counts.learnt),
            "called": _of(counts.called_memorised, counts.memorised),
            "auc": auc(rows),
            "auc_of_both": auc(rows, of_both=True),
        }
        for half, rows in {**of_half, "whole": second}.items()
        for counts in (score(rows, rule),)
    }
    return found | {
        "rows": sorted(
            itertools.chain(*of_half.values()), key=lambda row: (list(KINDS).index(row["kind"]), row["place"])
        ),
        "n": len(first) + len(second),
        "n_planned": PLACES * len(KINDS),
        "kinds": [
            (half, of_kind(rows, kind, rule))
            for half, rows in (("first", first), ("second", second))
            for kind in kinds_of(rows)
        ],
        "costs": json.loads(COSTS.read_text("utf-8")),
        "rule": rule,
        "fixed_with": FIXED_WITH,
        "truth": truth,
        "by_seed": lambda row: by_seed(row, rule),
    }


def _of(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else "-"
