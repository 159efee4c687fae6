"""A benchmark in sentences and a table, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator

from anchorlens.benchmarking.questions import QUESTIONS
from anchorlens.benchmarking.result import Benchmark, ReadingScore
from anchorlens.safe import safe_text
from anchorlens.show.tables import Table, TableCell

MOST_FAILURES = 3
"""Failures that are spelled out."""


def overview(result: Benchmark) -> str:
    """Which models were asked, and how an AUC is read."""
    n_tasks = len({model.task for model in result.models})
    return (
        f"{safe_text(result.probe)}: {len(result.models):,} models of {n_tasks:,} tasks. AUC with a 95 % "
        "interval that draws tasks; .5 tells nothing, below .5 the sign is the other way round."
    )


def benchmark_table(result: Benchmark, reference: Benchmark | None = None) -> Table:
    """A row for every reading, those that tell most first, whichever their sign.

    Args:
        result: whose readings stand out.
        reference: others beside them; None for none.
    """
    others = [] if reference is None else list(reference.readings)
    beside = [(reading, False) for reading in others]
    readings = [*((reading, True) for reading in result.readings), *beside]
    readings.sort(key=lambda item: -item[0].telling)
    columns = ("reading", *(f"{name}?" for name in QUESTIONS), "no value")
    return Table(
        columns,
        [_row(reading) for reading, _ in readings],
        "AUC of each reading",
        range(1, len(columns)),
        [own and bool(others) for _, own in readings],
    )


def _row(reading: ReadingScore) -> tuple[TableCell | str, ...]:
    n_missing = sum(value is None for value in reading.values.values())
    scores = (reading.scores[name].in_words for name in QUESTIONS)
    return (TableCell(safe_text(reading.name), code=True), *scores, str(n_missing or ""))


def notes(result: Benchmark, reference: Benchmark | None = None) -> Iterator[str]:
    """What each question asks, on how many models; what failed; whose the other rows are."""
    for name, question in QUESTIONS.items():
        n_no, n_yes = (sum(m.ending in side for m in result.models) for side in (question.no, question.yes))
        yield f"{name}: {question.asks} {n_yes} against {n_no} models."
    if result.failures:
        shown = list(result.failures.items())[:MOST_FAILURES]
        said = "; ".join(f"{safe_text(model)}: {safe_text(why)}" for model, why in shown)
        more = len(result.failures) - len(shown)
        rest = f"; and {more:,} more" if more else ""
        yield f"It failed on {len(result.failures):,} of {len(result.models):,} models: {said}{rest}."
    if reference is not None:
        asked = len(reference.models)
        here = "" if asked == len(result.models) else f", on all {asked:,} models"
        yield f"The other rows are our own readings and WeightWatcher's alpha{here} (docs/benchmark.md)."
