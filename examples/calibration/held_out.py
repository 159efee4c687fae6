"""What the fit is worth: agreement with behaviour on held-out runs, with confidence intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from scipy.stats import binomtest

from anchorlens.tasks.shared.phases import LABELS, PHASES
from anchorlens.verdict import READINGS
from anchorlens.verdict.calibration import LogisticModel
from anchorlens.verdict.mechanism import named
from calibration.fit import UNDECIDED, Row, final_label, fit_final
from calibration.zoo import MOMENTS

N_BINS, N_RESAMPLES = 10, 1000
GROUPS: Mapping[str, tuple[str, ...]] = {
    "fit (not held out)": ("fit",),
    "held-out seeds": ("held-out-seeds",),
    "unseen width": ("unseen-width", "unseen-width-96"),
    "unseen variant": ("unseen-variant",),
    "all held out": ("held-out-seeds", "unseen-width", "unseen-width-96", "unseen-variant"),
}
"""What a row of the tables is called -> groups of the zoo."""

_UNSEEN = tuple(
    reading.name for reading in READINGS if reading.measurement.startswith("fusion_similarity of ")
)
_HELD_OUT = ("information_flow.margin of held-out keys",)
ABLATIONS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "activations of unseen pairs": _UNSEEN,
    "margin on held-out keys": _HELD_OUT,
    "both": (*_UNSEEN, *_HELD_OUT),
}
"""What a row of the table is called -> readings that the fit does without."""


def verdicts(rows: Sequence[Row], model: LogisticModel) -> list[dict[str, Any]]:
    """What behaviour and mechanism say of each run, and how sure the mechanism is."""
    found = []
    for row in rows:
        values = row["readings"]
        label, probability = UNDECIDED, float("nan")
        if values is not None and not row["behaviour"]["label"].startswith("undecided: underfit"):
            probabilities = model.probabilities(values)
            label = UNDECIDED if model.unfamiliar(values) else named(probabilities) or UNDECIDED
            probability = max(probabilities.values())
        found.append(
            {
                "group": row["group"],
                "behaviour": row["behaviour"]["label"],
                "borderline": row["borderline"].startswith("undecided: borderline"),
                "mechanism": label,
                "probability": probability,
                "readings": values,
            }
        )
    return found


def agreement(found: Sequence[Mapping[str, Any]], same: Callable[[str, str], bool]) -> tuple[int, int]:
    """How many agree, of those to which both verdicts give a phase."""
    both = [one for one in found if one["behaviour"] in LABELS and one["mechanism"] in LABELS]
    return sum(same(one["behaviour"], one["mechanism"]) for one in both), len(both)


def same_phase(a: str, b: str) -> bool:
    """Whether two labels are of one phase."""
    return PHASES[a][0] == PHASES[b][0]


def same_label(a: str, b: str) -> bool:
    """Whether two labels are the same, commutativity included."""
    return a == b


def interval(hits: int, n: int) -> str:
    """`share (low-high)`, the 95 % Wilson interval, in percent."""
    if n == 0:
        return "-"
    low, high = binomtest(hits, n).proportion_ci(method="wilson")
    return f"{hits / n:.1%} ({low:.0%} to {high:.0%}), {hits} of {n}"


def calibration_error(found: Sequence[Mapping[str, Any]]) -> str:
    """Expected calibration error of the named label, in ten bins, with a 95 % bootstrap interval."""
    both = [one for one in found if one["behaviour"] in LABELS and one["mechanism"] in LABELS]
    if not both:
        return "-"
    sure = np.array([one["probability"] for one in both])
    right = np.array([one["behaviour"] == one["mechanism"] for one in both], float)
    random = np.random.default_rng(0)
    samples = [random.integers(len(both), size=len(both)) for _ in range(N_RESAMPLES)]
    errors = [_error(sure[sample], right[sample]) for sample in samples]
    low, high = np.quantile(errors, [0.025, 0.975])
    return f"{_error(sure, right):.3f} ({low:.3f} to {high:.3f})"


def _error(sure: np.ndarray, right: np.ndarray) -> float:
    bins = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    there = [bins == b for b in range(N_BINS) if (bins == b).any()]
    return float(sum(abs(sure[b].mean() - right[b].mean()) * b.mean() for b in there))


def accuracy_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Agreement, coverage and calibration error of every group."""
    shown = Table(
        "group",
        "runs",
        "with a phase",
        "of which named",
        "same phase",
        "... not borderline",
        "same commutativity too",
        "calibration error",
        box=box.MARKDOWN,
    )
    for name, groups in GROUPS.items():
        chosen = [one for one in found if one["group"] in groups]
        phases = [one for one in chosen if one["behaviour"] in LABELS]
        clear = [one for one in chosen if not one["borderline"]]
        shown.add_row(
            name,
            str(len(chosen)),
            str(len(phases)),
            str(sum(one["mechanism"] in LABELS for one in phases)),
            interval(*agreement(chosen, same_phase)),
            interval(*agreement(clear, same_phase)),
            interval(*agreement(chosen, same_label)),
            calibration_error(chosen),
        )
    return shown


def ablation_table(rows: Sequence[Row]) -> Table:
    """How many held-out runs get the same phase from a fit without some of the readings."""
    shown = Table("readings left out", "same phase, all held out", "of which named", box=box.MARKDOWN)
    fitted = [row for row in rows if row["group"] == "fit"]
    for name, without in ABLATIONS.items():
        found = verdicts(rows, LogisticModel.from_dict(fit_final(fitted, without)))
        held_out = [one for one in found if one["group"] in GROUPS["all held out"]]
        phases = [one for one in held_out if one["behaviour"] in LABELS]
        n_named = sum(one["mechanism"] in LABELS for one in phases)
        shown.add_row(name, interval(*agreement(held_out, same_phase)), f"{n_named} of {len(phases)}")
    return shown


def confusion_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Behaviour down, mechanism across, over everything held out."""
    held_out = [one for one in found if one["group"] in GROUPS["all held out"]]
    counts = Counter((one["behaviour"], one["mechanism"]) for one in held_out)
    columns = [*LABELS, UNDECIDED]
    rows = [*LABELS, *sorted({one["behaviour"] for one in held_out} - set(LABELS))]
    shown = Table("behaviour / mechanism", *columns, box=box.MARKDOWN)
    for row in rows:
        shown.add_row(row, *(str(counts[row, column]) for column in columns))
    return shown


def early_table(rows: Sequence[Row], early: Mapping[str, LogisticModel]) -> Table:
    """Of held-out runs: how often the early verdict, and the behaviour at that moment, is the final phase."""
    shown = Table(
        "steps taken", "runs", "early verdict: same phase", "behaviour then: same phase", box=box.MARKDOWN
    )
    held_out = [row for row in rows if row["group"] in GROUPS["all held out"]]
    for moment in map(str, MOMENTS):
        there = [row for row in held_out if row["early"][moment]["readings"] is not None]
        ends = [phase_of(final_label(row)) for row in there]
        forecast = [early[moment].probabilities(row["early"][moment]["readings"]) for row in there]
        guessed = [phase_of(max(one, key=lambda label: one[label])) for one in forecast]  # noqa: B023
        now = [phase_of(row["early"][moment]["now"]) for row in there]
        shown.add_row(
            f"{float(moment):.0%}",
            str(len(there)),
            interval(sum(a == b for a, b in zip(guessed, ends, strict=True)), len(there)),
            interval(sum(a == b for a, b in zip(now, ends, strict=True)), len(there)),
        )
    return shown


def phase_of(label: str) -> int | None:
    """1, 2, 3, or None for every kind of undecided."""
    return PHASES[label][0] if label in PHASES else None
