"""The tables for every output, which are the terminal (`FittedTable`) and HTML (the macro `table`)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from anchorlens.show.words import AGREEMENT, number, short
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.figure_specs import SampleTable
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import Phase
from anchorlens.tasks.two_anchor.evaluation import PairAccuracy
from anchorlens.verdict.verdict import TrajectoryPoint, Verdict

MOST_ANCHORS = 12
"""The largest number of anchors whose pairs fit into a table next to other content."""


class TableCell(NamedTuple):
    """The content of a table cell with a colour or in code style."""

    text: str
    colour: str = ""
    """The CSS colour of a dot before the text. A terminal does not show the dot."""
    code: bool = False
    """Whether the text is a name in a program."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table of texts, with the names of the rows in the first column."""

    columns: Sequence[str | TableCell]
    """The column headings. HTML capitalises headings of plain text, but not the text of a `TableCell`."""
    rows: Sequence[Sequence[str | TableCell]]
    """The rows from top to bottom."""
    title: str = ""
    """The heading above the table, or an empty text without a heading."""
    numbers: Sequence[int] = ()
    """The indices of the columns of numbers, which do not wrap. HTML aligns these columns to the right."""
    strong: Sequence[bool] = ()
    """Whether each row is emphasised. The sequence is empty if no row is emphasised."""
    meanings: bool = False
    """Whether the last column explains the first column. HTML then shows the explanation in small type below
    the name of the row."""

    def shortened(self, most: int) -> Table:
        """Return the table with texts of at most `most` characters."""
        return replace(self, rows=[[short(text_of(item), most) for item in row] for row in self.rows])


def text_of(item: str | TableCell) -> str:
    """Return the text of a table cell."""
    return item if isinstance(item, str) else item.text


def sample_tables(behaviour: Evaluation) -> list[tuple[str, Table]]:
    """Return the captions and tables of sample answers. The result is empty without sample answers."""
    columns = ("prompt", "split", "result", "expected", "answer")
    tables = []
    for spec in behaviour.figure_specs:
        if not isinstance(spec, SampleTable) or not spec.answers:
            continue
        rows = []
        for answer in spec.answers:
            said = TableCell(answer.said or "nothing", code=bool(answer.said))
            said = "the same" if answer.said == answer.expected else said
            result = "correct" if answer.right else "wrong"
            prompt, expected = TableCell(answer.prompt, code=True), TableCell(answer.expected, code=True)
            rows.append((prompt, answer.asked_of, result, expected, said))
        tables.append((spec.caption, Table(columns, rows, spec.title)))
    return tables


def accuracy_table(behaviour: Evaluation) -> Table:
    """Make a table with a row for every measured accuracy or other metric."""
    rows = [(name, *_with_error(one), f"{one.n_sequences:,}", text) for name, one, text in behaviour.rows()]
    accuracies = all(metric.unit == "accuracy" for metric in behaviour.metrics)
    columns = ("accuracy" if accuracies else "metric", "value", "± s.e.", "sequences", "meaning")
    title = f"accuracies, with the standard error of the {behaviour.drawn_at_random}"
    title = title if accuracies else "metrics with standard errors"
    return Table(columns, rows, title, (1, 2, 3), meanings=True)


def accuracies_table(behaviours: Sequence[Evaluation], names: Sequence[str]) -> Table:
    """Make a table with a row for every metric and a column for each model."""
    found = [
        {(title, text): " ± ".join(_with_error(value)) for title, value, text in one.rows()}
        for one in behaviours
    ]
    metrics = dict.fromkeys(itertools.chain(*found))
    rows = [(title, *(known.get((title, text), "-") for known in found), text) for title, text in metrics]
    title = "metrics with standard errors"
    columns = ("metric", *map(TableCell, names), "meaning")
    return Table(columns, rows, title, range(1, len(names) + 1), meanings=True)


def _with_error(value: Accuracy) -> tuple[str, str]:
    return number(value.value, ".3f"), number(value.standard_error, ".3f")


def pair_rows(behaviour: Evaluation, most: int) -> dict[int, list[PairAccuracy | None]]:
    """Return the accuracy on each pair by first anchor and second anchor.

    The value of an absent pair is None. The result is empty for chains of more than two anchors, for more
    than `most` anchors, and for tasks without anchor pairs.
    """
    pairs = behaviour.by_pair()
    anchors = list(dict.fromkeys(pair[0] for pair in pairs))
    if {len(pair) for pair in pairs} != {2} or len(anchors) > most:
        return {}
    return {first: [pairs.get((first, second)) for second in anchors] for first in anchors}


def pair_grid(behaviour: Evaluation) -> Table | None:
    """Make a table of the accuracy on every pair if a table of all pairs fits next to other content."""
    found = pair_rows(behaviour, MOST_ANCHORS)
    if not found:
        return None
    rows = [(f"{first}, ..", *map(_accuracy, pairs)) for first, pairs in found.items()]
    title = "accuracy by pair, first anchor down (*: OOD)"
    return Table(("pair", *(f".., {anchor}" for anchor in found)), rows, title, range(1, len(found) + 1))


def pair_list(pairs: Iterable[PairAccuracy], title: str) -> Table:
    """Make a table with a row for every pair or longer chain of anchors."""
    rows = [(", ".join(map(str, pair.pair)), _accuracy(pair)) for pair in pairs]
    return Table(("anchors", "accuracy"), rows, f"{title} (*: OOD)", (1,))


def pairs_seen(pairs: Collection[PairAccuracy]) -> str:
    """Return a sentence on the lowest and highest accuracy on trained pairs and on unseen pairs."""
    parts = []
    for split, words in (("id", "trained pairs, with held-out keys"), ("ood", "unseen pairs (boxed)")):
        if values := [pair.accuracy.value for pair in pairs if pair.split == split]:
            low, high = f"{min(values):.2f}", f"{max(values):.2f}"
            parts.append(f"{words}: {low if low == high else f'{low} to {high}'}")
    return f"{'; '.join(parts)}."


def _accuracy(pair: PairAccuracy | None) -> str:
    return "-" if pair is None else number(pair.accuracy.value, ".3f") + ("*" if pair.split == "ood" else " ")


def verdict_table(verdicts: Sequence[Verdict], names: Sequence[str], most: int | None = None) -> Table:
    """Make a table of every model's probe verdict, behavioural verdict, agreement and metrics.

    Args:
        verdicts: the verdicts on the models.
        names: the names of the models.
        most: the largest number of metrics. The table keeps the first `most` metrics. Default: all metrics
            that belong in tables.
    """
    declared = {metric.name: metric for verdict in verdicts for metric in verdict.behaviour.metrics}
    metrics = [metric for metric in declared.values() if metric.in_tables][:most]
    rows = []
    for name, verdict in zip(names, verdicts, strict=True):
        by_probes, behaviour = verdict.by_probes, verdict.behaviour
        label = by_probes.phase.label
        if by_probes.phase.cause is None and by_probes.probabilities is not None:
            own = by_probes.probabilities.get(by_probes.phase.solution or label)
            label = label if own is None else f"{label} ({own:.2f})"  # none: a sum over the forms of Phase 2
        phases = (dotted(by_probes.phase, label), dotted(verdict.phase))
        measures = (behaviour.measure(metric.name) for metric in metrics)
        texts = ("-" if measure is None else number(measure.value, ".3f") for measure in measures)
        rows.append((name, *phases, AGREEMENT[verdict.agreement].word, *texts))
    columns = ("model", "by the probes", "by behaviour", "agree", *(metric.title for metric in metrics))
    return Table(columns, rows, "", range(4, len(columns)))


def dotted(phase: Phase, text: str | None = None) -> TableCell:
    """Return a phase's label, or another text, with a dot in the phase's colour."""
    return TableCell(phase.label if text is None else text, phase.colour if phase.is_named else "none")


def trajectory_table(points: Sequence[TrajectoryPoint]) -> Table:
    """Make a table with a row for each checkpoint of a run, and OOD and phases if the task has them."""
    has_ood = any(point.ood is not None for point in points)
    rows = []
    for point in points:
        values = (point.train, point.id, *([point.ood] if has_ood else []))
        accuracies = (number(value, ".3f") for value in values)
        rows.append((f"{point.step:,}", f"{point.fraction:.1%}", *accuracies, point.now))
    measured, what = (["OOD"], "phase") if has_ood else ([], "label")
    columns = ("step", "progress", "train", "ID", *measured, what)
    return Table(columns, rows, f"{what} against step", range(len(columns) - 1))
