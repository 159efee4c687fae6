"""What is told of an audit, in words and tables of texts, for terminals and notebooks."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anchorlens.audit.lateness import Score
from anchorlens.audit.result import Audit
from anchorlens.foreign import printable

MOST_GROUPS = 8
"""Groups that are listed, the latest; --json and --out tell of all."""


def outline(audit: Audit) -> str:
    """What was audited, how."""
    data = audit.mappings
    seeds = f"seed {audit.seeds[0]}" if len(audit.seeds) == 1 else f"{len(audit.seeds)} seeds"
    return (
        f"{printable(data.name)}: {len(data):,} mappings in {len(data.groups):,} groups; "
        f"gamma {audit.model.gamma:g}, {audit.moments[-1]:,} steps, {seeds}"
    )


def listings(audit: Audit, top: int) -> Iterator[Listing]:
    """Scores where the truth is known, then the latest mappings and groups; none of them where none tells.

    Args:
        audit: of which.
        top: mappings that are listed.
    """
    if audit.score is not None and audit.group_score is not None:
        yield scores(audit.score, audit.group_score)
    if all(limit is None for limit in audit.fences):
        return
    if top > 0:
        yield latest_mappings(audit, top)
    if len(audit.mappings.groups) > 1:
        yield latest_groups(audit)


def summary(audit: Audit) -> str:
    """What stands out, in sentences."""
    n_without = sum(limit is None for limit in audit.fences)
    if n_without == len(audit.fences):
        return "Nothing can be told: the models have not fit their data (three quarters); take more steps."
    flagged, groups = int(audit.flagged.sum()), audit.group_flagged
    if not flagged:
        found = "Nothing stands out."
    else:
        found = f"{flagged:,} of {len(audit.mappings):,} mappings stand out: they are fit late, or never."
        mirrored = int((audit.flagged & audit.mirror_flagged).sum())
        if mirrored:
            found += (
                f" {mirrored:,} of them are mirrors of each other (both orders of the anchors, one key): one "
                "exception makes both late."
            )
    if groups.any():
        names = ["(" + ", ".join(map(str, audit.mappings.groups[k])) + ")" for k in groups.nonzero()[0]]
        found += f" Most of {_shortened(names)} do."
    if n_without:
        found += f" {n_without} of {len(audit.fences)} models have not fit their data and do not count."
    return found


def _shortened(names: list[str]) -> str:
    rest = len(names) - MOST_GROUPS
    return ", ".join(names[:MOST_GROUPS]) + (f" and {rest} more groups" if rest > 0 else "")


def fit_in_words(audit: Audit) -> str:
    """Where the fences are, and what was never fit."""
    never = int((audit.never_fit > 0).sum())
    fences = [f"{limit:,.0f}" for limit in audit.fences if limit is not None]
    what = "step" if len(fences) == 1 else "steps"
    text = (
        f"Fit later than {what} {', '.join(fences)} (a fence for each model) stands out. " if fences else ""
    )
    return text + (f"{never:,} were never fit by some model (censored)." if never else "All were fit.")


@dataclass(frozen=True, eq=False)
class Listing:
    """A table of texts."""

    title: str
    """Above it."""
    columns: tuple[str, ...]
    """Heads."""
    rows: tuple[tuple[bool, tuple[str, ...]], ...]
    """Whether a row stands out, and its texts."""


def scores(mappings: Score, groups: Score) -> Listing:
    """Both scores, a row each."""
    columns = ("", "of", "violate", "AUC", "flagged", "precision", "recall")
    rows = []
    for name, one in (("mappings", mappings), ("groups", groups)):
        auc = "-" if one.auc is None else f"{one.auc:.3f} ± {one.auc_error:.3f}"
        shares = ("-" if share is None else f"{share:.2f}" for share in (one.precision, one.recall))
        counts = (f"{one.n:,}", f"{one.n_violating:,}")
        rows.append((False, (name, *counts, auc, f"{one.n_flagged:,}", *shares)))
    return Listing("lateness and flags against the truth", columns, tuple(rows))


def latest_mappings(audit: Audit, top: int) -> Listing:
    """The latest mappings, `top` of them."""
    truth = audit.mappings.violates is not None
    rows = []
    for place, row in zip(range(1, top + 1), audit.rows(), strict=False):
        anchors = " ".join(str(value) for name, value in row.items() if name[0] == "a" and name[1:].isdigit())
        texts = (
            str(place),
            anchors,
            str(row["key"]),
            str(row["target"]),
            f"{row['lateness']:.3f}",
            _steps(row),
            "yes" if row["flagged"] else "",
            *(["yes" if row["violates"] else ""] if truth else []),
        )
        rows.append((row["flagged"], texts))
    columns = ("", "anchors", "key", "target", "lateness", "fit at step", "flagged")
    title = f"the latest {len(rows):,} of {len(audit.mappings):,} mappings"
    return Listing(title, (*columns, *(["violates"] if truth else [])), tuple(rows))


def latest_groups(audit: Audit) -> Listing:
    """The latest groups, `MOST_GROUPS` of them."""
    truth = audit.mappings.violates is not None
    rows = list(audit.group_rows())
    title = f"the latest {MOST_GROUPS} of {len(rows):,} groups" if len(rows) > MOST_GROUPS else "groups"
    shown = []
    for row in rows[:MOST_GROUPS]:
        step = row["median_fit_step"]
        texts = (
            " ".join(map(str, row["group"])),
            f"{row['n_mappings']:,}",
            f"{row['lateness']:.3f}",
            "never" if step is None else f"{step:,.0f}",
            f"{row['n_flagged']:,}",
            *([f"{row['n_violating']:,}"] if truth else []),
        )
        shown.append((row["flagged"], texts))
    columns = ("anchors", "mappings", "lateness", "median fit step", "flagged")
    return Listing(title, (*columns, *(["violate"] if truth else [])), tuple(shown))


def _steps(row: Mapping[str, Any]) -> str:
    """Steps of all models, or their middle and range where there are many."""
    steps = [value for name, value in row.items() if name.startswith("fit_step ")]
    if len(steps) <= 4:
        return ", ".join("never" if step is None else f"{step:,}" for step in steps)
    fit = [step for step in steps if step is not None]
    never = f"; never in {len(steps) - len(fit)}" if len(fit) < len(steps) else ""
    return f"{statistics.median(fit):,.0f} ({min(fit):,} to {max(fit):,}){never}" if fit else "never"
