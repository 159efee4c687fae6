"""What the fit is worth: agreement with behaviour on runs that it has not seen, with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from scipy.stats import binomtest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from anchorlens.tasks.shared.phases import LABELS, PHASES
from anchorlens.verdict.calibration import Calibration
from anchorlens.verdict.mechanism import named
from anchorlens.verdict.questions import UNDECIDED, QuestionModel
from anchorlens.verdict.readings import READINGS
from calibration.fit import (
    BY_DECODING,
    BY_PROBES,
    OF_A_TRAINED_MODEL,
    QUESTIONS,
    fit,
    given,
    left_out,
    log_odds_of,
    of_early,
    values_of,
)
from calibration.fit import Table as Rows
from calibration.runs import GROUPS

N_BINS, N_RESAMPLES = 10, 1000
ALL = "all held out"


@dataclass(frozen=True)
class Said:
    """What behaviour and a verdict say of one run."""

    group: str
    behaviour: str
    """Label by definition."""
    borderline: bool
    """Whether a number that decides is within two standard errors of its threshold."""
    probabilities: Mapping[str, float]
    least: float
    """A phase less probable is not named."""

    @property
    def of_phases(self) -> dict[int, float]:
        """Phase -> probability."""
        found: dict[int, float] = {}
        for label in LABELS:
            phase = PHASES[label][0]
            found[phase] = found.get(phase, 0.0) + self.probabilities[label]
        return found

    @property
    def sure(self) -> float:
        """Probability of the most probable phase."""
        return max(self.of_phases.values())

    @property
    def is_named(self) -> bool:
        """Whether the verdict names a phase."""
        return self.sure >= self.least

    @property
    def right(self) -> bool:
        """Whether the most probable phase is that by definition."""
        return max(self.of_phases.items(), key=lambda item: item[1])[0] == PHASES[self.behaviour][0]

    @property
    def commutative(self) -> bool | None:
        """Of Phase 2, what the verdict says of commutativity."""
        return named(self.probabilities, self.least).commutative


def verdicts(rows: Rows, model: QuestionModel, widened: Sequence[float] | None = None) -> list[Said]:
    """What is said of every run that has a phase by definition.

    Args:
        rows: runs, one row each.
        model: the verdict.
        widened: what the log-odds of each row are divided by.
    """
    found = []
    values = values_of(rows)
    for k, (index, row) in enumerate(rows.iterrows()):
        if row["label"] not in LABELS:
            continue
        spread = 1.0 if widened is None else widened[k]
        found.append(
            Said(
                row["group"],
                row["label"],
                str(row["clear_label"]).startswith("undecided: borderline"),
                model.probabilities(given(values.loc[index]), spread),
                model.least_probability,
            )
        )
    return found


def widened(rows: Rows, calibrated: Calibration) -> list[float]:
    """What the calibration divides the log-odds of each run by, for its shape."""
    names = ("variant", "n_layers", "n_heads", "d_model")
    return [calibrated.widened({name: row[name] for name in names}) for _, row in rows.iterrows()]


def interval(hits: int, n: int) -> str:
    """`share (low to high), hits of n`, the 95 % Wilson interval, in percent."""
    if n == 0:
        return "-"
    low, high = binomtest(hits, n).proportion_ci(method="wilson")
    return f"{hits / n:.1%} ({low:.0%} to {high:.0%}), {hits} of {n}"


def share_right(said: Sequence[Said]) -> str:
    """Of those that are named, how many rightly."""
    some = [one for one in said if one.is_named]
    return interval(sum(one.right for one in some), len(some))


def right_commutativity(said: Sequence[Said]) -> str:
    """Of those in Phase 2 by both, of which commutativity is said, how many rightly."""
    both = [
        one for one in said if PHASES[one.behaviour][0] == 2 and one.is_named and one.commutative is not None
    ]
    return interval(sum(one.commutative == PHASES[one.behaviour][1] for one in both), len(both))


def calibration_error(said: Sequence[Said]) -> str:
    """Expected calibration error of the most probable phase, in ten bins, with a 95 % bootstrap interval."""
    if not said:
        return "-"
    sure = np.array([one.sure for one in said])
    right = np.array([one.right for one in said], float)
    random = np.random.default_rng(0)
    samples = [random.integers(len(said), size=len(said)) for _ in range(N_RESAMPLES)]
    errors = [_error(sure[sample], right[sample]) for sample in samples]
    low, high = np.quantile(errors, [0.025, 0.975])
    return f"{_error(sure, right):.3f} ({low:.3f} to {high:.3f})"


def _error(sure: np.ndarray, right: np.ndarray) -> float:
    bins = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    there = [bins == b for b in range(N_BINS) if (bins == b).any()]
    return float(sum(of.sum() * abs(sure[of].mean() - right[of].mean()) for of in there)) / len(sure)


def by_group(said: Sequence[Said]) -> dict[str, list[Said]]:
    """Group -> what is said of its runs, those that are fit on first, and all that are held out last."""
    found = {group: [one for one in said if one.group == group] for group in GROUPS}
    return {**found, ALL: [one for one in said if one.group != "fit"]}


def accuracy_table(said: Sequence[Said], left_out: Sequence[Said], title: str) -> Table:
    """A row for each group: how many are named, and how many of them rightly.

    Args:
        said: of every run.
        left_out: of the runs that are fit on, each from a fit without its seed.
        title: which verdict it is.
    """
    columns = ("group", "with a phase", "named", "same phase", "... not borderline")
    columns += ("commutativity, of those said", "calibration error")
    found = _table(*columns, title=title)
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
        counted = [UNDECIDED if phase.phase is None else phase.label for phase in names]
        found.add_row(label, *(str(counted.count(column)) for column in columns))
    return found


def selective(said: Sequence[Said]) -> list[tuple[float, float, int]]:
    """(share of models named, share of them right, how many), the surest first."""
    ordered = sorted(said, key=lambda one: -one.sure)
    right = np.cumsum([one.right for one in ordered])
    n = len(ordered)
    return [((k + 1) / n, float(right[k]) / (k + 1), k + 1) for k in range(n)]


def selective_table(said: Mapping[str, Sequence[Said]]) -> Table:
    """Accuracy where only the surest share of the held-out models is named."""
    shares = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
    found = _table("named", *said, title="same phase, of the surest, all held out")
    for share in shares:
        cells = []
        for some in said.values():
            held_out = sorted(by_group(some)[ALL], key=lambda one: -one.sure)
            chosen = held_out[: round(share * len(held_out))]
            cells.append(interval(sum(one.right for one in chosen), len(chosen)))
        found.add_row(f"{share:.0%}", *cells)
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


def early_table(rows: Rows, early: Mapping[float, QuestionModel]) -> Table:
    """How often the early verdict has the end right, and how often each of its two parts alone.

    Of the seeds that it is fit on, each from a fit without it; and of what is held out.
    """
    columns = ("early verdict: same end", "the inside alone", "the behaviour then alone")
    found = _table("steps taken", "of", "runs", *columns)
    questions = tuple(QUESTIONS)
    for moment, model in early.items():
        then = rows[rows["moment"] == moment]
        mine = then[then["group"] == "fit"].reset_index(drop=True)
        others = then[then["group"] != "fit"]
        inside = QuestionModel.from_dict(fit(mine, of_early(mine, inside_alone=True), questions))
        values = [given(row) for _, row in of_early(others).values.iterrows()]
        said = {
            "fitted seeds, each left out": (
                mine,
                left_out(mine, of_early(mine), questions),
                left_out(mine, of_early(mine, inside_alone=True), questions),
            ),
            ALL: (others, *([one.probabilities(row) for row in values] for one in (model, inside))),
        }
        for title, (runs, *probabilities) in said.items():
            ends = [_end(label) for label in runs["label"]]
            guesses = [[_most_probable(one) for one in some] for some in probabilities]
            guesses.append([_end(label) for label in runs["now"]])
            hits = [sum(a == b for a, b in zip(ends, some, strict=True)) for some in guesses]
            cells = (interval(one, len(ends)) for one in hits)
            found.add_row(f"{moment:.0%}", title, str(len(ends)), *cells)
    return found


def _most_probable(probabilities: Mapping[str, float]) -> int | None:
    """The phase that is most probable, its two forms of Phase 2 together; None for no phase."""
    found: dict[int | None, float] = {}
    for label, probability in probabilities.items():
        end = _end(label)
        found[end] = found.get(end, 0.0) + probability
    return max(found, key=lambda end: found[end])


def _end(label: str) -> int | None:
    """The phase of a label; None where there is none."""
    return PHASES[label][0] if label in PHASES else None


def left_out_said(rows: Rows, probabilities: Sequence[Mapping[str, float]], least: float) -> list[Said]:
    """What is said of runs from fits without them."""
    return [
        Said(
            row["group"],
            row["label"],
            str(row["clear_label"]).startswith("undecided: borderline"),
            one,
            least,
        )
        for (_, row), one in zip(rows.iterrows(), probabilities, strict=True)
        if row["label"] in LABELS
    ]


def _table(*columns: str, title: str | None = None) -> Table:
    """An empty Markdown table."""
    table = Table(*columns, box=box.MARKDOWN, title=title)
    for column in table.columns:
        column.overflow = "fold"
    return table
