"""An audit in sentences and tables, in the terminal and in a notebook."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anchorlens.extras.audit.lateness import FIT, Score
from anchorlens.extras.audit.result import POWER, Audit
from anchorlens.show import FittedTable, Table, Terminal, view
from anchorlens.texts import safe_text
from anchorlens.views import html

MOST_GROUPS = 8
"""The largest number of listed groups, the latest groups first. `--json` and `--out` give all groups."""
MOST_SUSPECTS = 20
"""The largest number of flagged mappings that are described in words, the latest mappings first."""


def overview(audit: Audit) -> str:
    """Return a line with the audited data, the model, the steps and the seeds."""
    data = audit.mappings
    seeds = f"seed {audit.seeds[0]}" if len(audit.seeds) == 1 else f"{len(audit.seeds)} seeds"
    threshold = "" if audit.fit == FIT else f", fit from probability {audit.fit:g}"
    odd = f", {len(data.disagreeing):,} of them with different targets" if data.disagreeing else ""
    return (
        f"{safe_text(data.name)}: {len(data):,} mappings{odd} in {len(data.groups):,} groups; "
        f"gamma {audit.model_config.gamma:g}, {audit.evaluation_steps[-1]:,} steps, {seeds}{threshold}"
    )


def audit_tables(audit: Audit, top: int) -> Iterator[Table]:
    """Yield the tables of scores, of the mappings that are fit last, and of the groups that are fit last.

    The table of scores is included only if the violations are known. If no model has fit its data, the
    function omits the tables of mappings and groups.

    Args:
        audit: the audit to show.
        top: the largest number of listed mappings.
    """
    if audit.score is not None and audit.group_score is not None:
        yield _scores(audit.score, audit.group_score)
    if all(limit is None for limit in audit.fences):
        return
    if top > 0:
        yield _latest_mappings(audit, top)
    if len(audit.mappings.groups) > 1:
        yield _latest_groups(audit)


def summary(audit: Audit) -> str:
    """Return a summary of the outliers in sentences."""
    n_without = sum(limit is None for limit in audit.fences)
    if n_without == len(audit.fences):
        return "No result: the models have not fit three quarters of their data. Train for more steps."
    sentences = [_too_few(audit)] if audit.too_few_steps else []
    if audit.power is not None and audit.too_few_to_tell:
        sentences.append(
            f"Too few mappings: {_power(audit.power)}, but {POWER} is needed. Give more mappings."
        )
    if flagged := int(audit.flagged.sum()):
        n = len(audit.mappings)
        sentences.append(f"{flagged:,} of {n:,} mappings are outliers: they are fit late or never.")
    else:
        is_open = audit.too_few_steps or audit.too_few_to_tell
        sentences.append("No mapping is flagged." if is_open else "There are no outliers.")
    if mirrored := int((audit.flagged & audit.mirror_flagged).sum()):
        sentences.append(
            f"{mirrored:,} of them form reversed pairs with the same key; one exception makes both orders "
            f"late."
        )
    groups = [audit.mappings.groups[k] for k in audit.group_flagged.nonzero()[0]]
    if names := [f"({', '.join(map(str, group))})" for group in groups]:
        rest = f" and {len(names) - MOST_GROUPS} more groups" if len(names) > MOST_GROUPS else ""
        sentences.append(f"Most mappings of {', '.join(names[:MOST_GROUPS])}{rest} are outliers.")
    if n_without:
        sentences.append(
            f"{n_without} of {len(audit.fences)} models have not fit their data and are excluded."
        )
    return " ".join(sentences)


def _power(power: Score) -> str:
    return (
        f"{power.n_violating:,} wrong mappings planted in one more model are ranked at an AUC of "
        f"{power.auc:.2f} ± {power.auc_error:.2f} (chance 0.5)"
    )


def suspects(audit: Audit) -> list[str]:
    """Describe at most `MOST_SUSPECTS` flagged mappings in words, from the largest lateness to the smallest.

    A sentence gives a mapping's input, target and fit step. The sentence also states if the mapping of the
    reversed pair is late.
    """
    sentences = []
    for row in itertools.islice((row for row in audit.rows() if row["flagged"]), MOST_SUSPECTS):
        fit = "never fit" if row["never_fit"] == len(audit.seeds) else f"fit at step {_steps(row)}"
        if row["mirror_flagged"]:
            fit += "; the reverse order is also late, and one of the two may be correct"
        sentences.append(f"({_anchors(row, ', ')}) with key {row['key']} -> {row['target']}: {fit}")
    return sentences


def disagreements(audit: Audit) -> list[str]:
    """Describe at most `MOST_SUSPECTS` mappings whose rows have different targets."""
    data, lines = audit.mappings, []
    for k, rows in itertools.islice(data.disagreeing.items(), MOST_SUSPECTS):
        chain, targets = ", ".join(map(str, data.chains[k])), rows[:MOST_SUSPECTS]
        said = ", ".join(f"{target} in line {line}" for line, target in targets)
        lines.append(
            f"({chain}) with key {data.keys[k]} has different targets: {said}; {data.targets[k]} counts"
        )
    return lines


def _anchors(row: Mapping[str, Any], between: str = " ") -> str:
    return between.join(str(value) for name, value in row.items() if name[0] == "a" and name[1:].isdigit())


def _too_few(audit: Audit) -> str:
    """Explain why the steps are too few, with the number of steps to exceed."""
    never = int((audit.never_fit > 0).sum())
    why = f"{never:,} of {len(audit.mappings):,} mappings were never fit by some model"
    if late := audit.late_fences:
        steps = ", ".join(f"{limit:,.0f}" for limit in late)
        why += f"; {len(late)} of {len(audit.seeds)} thresholds lie after the last step (at {steps}), "
        why += "so these models flag no mapping"
    return f"The steps are too few: {why}. Train for more than {audit.evaluation_steps[-1]:,} steps."


def fit_in_words(audit: Audit) -> str:
    """Describe the steps of the fences, the number of mappings that are never fit, and the audit's power."""
    never = int((audit.never_fit > 0).sum())
    last = audit.evaluation_steps[-1]
    fences = [f"{limit:,.0f}" for limit in audit.fences if limit is not None and limit <= last]
    late = f"step{'s' * (len(fences) > 1)} {', '.join(fences)} (one threshold per model)"
    text = f"Mappings that are fit later than {late} are outliers. " if fences else ""
    text += f"{never:,} were never fit by some model (censored)." if never else "All were fit."
    if audit.power is None or audit.too_few_to_tell:
        return text
    return f"{text} Check of the audit: {_power(audit.power)}."


def _scores(mappings: Score, groups: Score) -> Table:
    """Tabulate the scores of mappings and groups, a row each."""
    rows = []
    for name, score in (("mappings", mappings), ("groups", groups)):
        auc = "-" if score.auc is None else f"{score.auc:.3f} ± {score.auc_error:.3f}"
        shares = ("-" if share is None else f"{share:.2f}" for share in (score.precision, score.recall))
        rows.append((name, f"{score.n:,}", f"{score.n_violating:,}", auc, f"{score.n_flagged:,}", *shares))
    columns = ("level", "count", "violating", "AUC", "flagged", "precision", "recall")
    return Table(columns, rows, "lateness and flags compared with the known violations")


def _latest_mappings(audit: Audit, top: int) -> Table:
    """Tabulate the latest `top` mappings."""
    truth = audit.mappings.violates is not None
    latest = list(itertools.islice(audit.rows(), top))
    rows = []
    for place, row in enumerate(latest, start=1):
        numbers = (str(place), _anchors(row), str(row["key"]), str(row["target"]), f"{row['lateness']:.3f}")
        answers = ("yes" if row[name] else "" for name in ("flagged", "violates")[: 1 + truth])
        rows.append((*numbers, _steps(row), f"{row['end_loss'] + 0.0:.2f}", *answers))
    columns = ("rank", "anchors", "key", "target", "lateness", "fit step", "loss", "flagged", "violation")
    title = f"the latest {len(rows):,} of {len(audit.mappings):,} mappings"
    tied = [row["tied"] for row in latest]
    if (most := max(tied, default=1)) > 1:
        first = tied.index(most) + 1
        title += f" ({first:,} to {first + most - 1:,} are equally late and ordered by their final loss)"
    strong = [row["flagged"] for row in latest]
    return Table(columns[: 8 + truth], rows, title, (0, 2, 3, 4, 6), strong)


def _latest_groups(audit: Audit) -> Table:
    """Tabulate the latest `MOST_GROUPS` groups."""
    truth, n_groups = audit.mappings.violates is not None, len(audit.mappings.groups)
    latest = list(itertools.islice(audit.group_rows(), MOST_GROUPS))
    rows = []
    for row in latest:
        counts = (f"{row[name]:,}" for name in ("n_flagged", "n_violating")[: 1 + truth])
        anchors, fit = " ".join(map(str, row["group"])), _step(row["median_fit_step"])
        rows.append((anchors, f"{row['n_mappings']:,}", f"{row['lateness']:.3f}", fit, *counts))
    columns = ("anchors", "mappings", "lateness", "median fit step", "flagged", "violating")[: 5 + truth]
    title = f"the latest {MOST_GROUPS} of {n_groups:,} groups" if n_groups > MOST_GROUPS else "groups"
    return Table(columns, rows, title, strong=[row["flagged"] for row in latest])


def _step(step: float | None) -> str:
    return "never" if step is None else f"{step:,.0f}"


def _steps(row: Mapping[str, Any]) -> str:
    """List the fit steps of all models, or one step if they agree."""
    steps = [value for name, value in row.items() if name.startswith("fit_step ")]
    return ", ".join(map(_step, steps if len(set(steps)) > 1 else steps[:1]))


def print_audit(audit: Audit, *, top: int = 20) -> None:
    """Print the outliers, the agreement with known violations, and the mappings and groups that are fit last.

    Args:
        audit: the audit to print.
        top: the largest number of listed mappings. The list starts with the mapping that is fit last.
    """
    console = Terminal()
    console.print(overview(audit))
    console.print(summary(audit), style="bold")
    tables = map(FittedTable, audit_tables(audit, top))
    console.print(fit_in_words(audit), *disagreements(audit), *tables, sep="\n")


TEMPLATE = Path(__file__).parent / "templates/audit.html"

MOST_MAPPINGS = 8


@html.register
def audit_html(audit: Audit) -> str:
    """Return HTML with the outliers, the agreement with known violations, and the latest mappings."""
    return view(
        TEMPLATE,
        overview=overview(audit),
        summary=summary(audit),
        fit=fit_in_words(audit),
        suspects=suspects(audit),
        disagreements=disagreements(audit),
        n_flagged=int(audit.flagged.sum()),
        shown=[table.shortened(60) for table in audit_tables(audit, MOST_MAPPINGS)],
    )
