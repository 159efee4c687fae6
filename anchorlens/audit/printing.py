"""An audit on stdout: tables for people, or one JSON object for programs."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from anchorlens.audit.lateness import Score
from anchorlens.audit.result import Audit

MOST_GROUPS = 8
"""Groups that are listed, the latest; --json and --out tell of all."""


def print_audit_json(audit: Audit) -> None:
    """Print exactly one JSON object, on one line: `Audit.to_dict`."""
    sys.stdout.write(json.dumps(audit.to_dict(), allow_nan=False) + "\n")


def print_audit(audit: Audit, *, top: int = 20) -> None:
    """Print what stands out, how that compares with the truth, and the latest mappings and groups.

    Args:
        audit: what to print.
        top: mappings that are listed, the latest.
    """
    console = Console(highlight=False, markup=False)
    data = audit.mappings
    seeds = f"seed {audit.seeds[0]}" if len(audit.seeds) == 1 else f"{len(audit.seeds)} seeds"
    console.print(
        f"{data.name}: {len(data):,} mappings in {len(data.groups):,} groups; gamma {audit.model.gamma:g}, "
        f"{audit.moments[-1]:,} steps, {seeds}"
    )
    console.print(_summary(audit), style="bold")
    console.print(_fit(audit))
    if audit.score is not None and audit.group_score is not None:
        console.print(_scores(audit.score, audit.group_score))
    if all(limit is None for limit in audit.fences):
        return
    if top > 0:
        console.print(_mappings(audit, top))
    if len(data.groups) > 1:
        console.print(_groups(audit))


def _summary(audit: Audit) -> str:
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


def _fit(audit: Audit) -> str:
    never = int((audit.never_fit > 0).sum())
    fences = [f"{limit:,.0f}" for limit in audit.fences if limit is not None]
    what = "step" if len(fences) == 1 else "steps"
    text = (
        f"Fit later than {what} {', '.join(fences)} (a fence for each model) stands out. " if fences else ""
    )
    return text + (f"{never:,} were never fit by some model (censored)." if never else "All were fit.")


def _scores(mappings: Score, groups: Score) -> Table:
    columns = ("of", "violate", "AUC", "flagged", "precision", "recall")
    table = Table("", *columns, title="lateness and flags against the truth")
    for name, one in (("mappings", mappings), ("groups", groups)):
        auc = "-" if one.auc is None else f"{one.auc:.3f} ± {one.auc_error:.3f}"
        shares = ("-" if share is None else f"{share:.2f}" for share in (one.precision, one.recall))
        table.add_row(name, f"{one.n:,}", f"{one.n_violating:,}", auc, f"{one.n_flagged:,}", *shares)
    return table


def _mappings(audit: Audit, top: int) -> Table:
    truth = audit.mappings.violates is not None
    table = Table("", "anchors", "key", "target", "lateness", "fit at step", "flagged")
    if truth:
        table.add_column("violates")
    for place, row in zip(range(1, top + 1), audit.rows(), strict=False):
        anchors = " ".join(str(value) for name, value in row.items() if name[0] == "a" and name[1:].isdigit())
        table.add_row(
            str(place),
            anchors,
            str(row["key"]),
            str(row["target"]),
            f"{row['lateness']:.3f}",
            _steps(row),
            "yes" if row["flagged"] else "",
            *(["yes" if row["violates"] else ""] if truth else []),
            style="bold" if row["flagged"] else None,
        )
    table.title = f"the latest {table.row_count:,} of {len(audit.mappings):,} mappings"
    return table


def _steps(row: Mapping[str, Any]) -> str:
    """Steps of all models, or their middle and range where there are many."""
    steps = [value for name, value in row.items() if name.startswith("fit_step ")]
    if len(steps) <= 4:
        return ", ".join("never" if step is None else f"{step:,}" for step in steps)
    fit = [step for step in steps if step is not None]
    never = f"; never in {len(steps) - len(fit)}" if len(fit) < len(steps) else ""
    return f"{statistics.median(fit):,.0f} ({min(fit):,} to {max(fit):,}){never}" if fit else "never"


def _groups(audit: Audit) -> Table:
    truth = audit.mappings.violates is not None
    rows = list(audit.group_rows())
    title = f"the latest {MOST_GROUPS} of {len(rows):,} groups" if len(rows) > MOST_GROUPS else "groups"
    table = Table("anchors", "mappings", "lateness", "median fit step", "flagged", title=title)
    if truth:
        table.add_column("violate")
    for row in rows[:MOST_GROUPS]:
        step = row["median_fit_step"]
        table.add_row(
            " ".join(map(str, row["group"])),
            f"{row['n_mappings']:,}",
            f"{row['lateness']:.3f}",
            "never" if step is None else f"{step:,.0f}",
            f"{row['n_flagged']:,}",
            *([f"{row['n_violating']:,}"] if truth else []),
            style="bold" if row["flagged"] else None,
        )
    return table
