"""A benchmark in sentences and a table, in the terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anchorlens.extras.benchmark.result import QUESTIONS, Benchmark, ReadingScore
from anchorlens.extras.benchmark.shipped import reference
from anchorlens.show import FittedTable, Table, TableCell, Terminal, view
from anchorlens.texts import safe_text
from anchorlens.views import html

MOST_FAILURES = 3
"""The largest number of failures described in full."""


def overview(result: Benchmark) -> str:
    """Describe which models were measured, and how to interpret an AUC."""
    n_tasks = len({model.task for model in result.models})
    return (
        f"{safe_text(result.probe)}: {len(result.models):,} models of {n_tasks:,} tasks. AUC with a 95% "
        f"bootstrap interval over tasks: 0.5 means no information; below 0.5 the reading is larger for "
        f"the *no* models."
    )


def benchmark_table(result: Benchmark, reference: Benchmark | None = None) -> Table:
    """Tabulate every reading, starting with the largest mean distance of its AUCs from 0.5.

    Args:
        result: the benchmark whose readings are emphasised.
        reference: a benchmark whose readings are also listed. Default: none.
    """
    readings = [(reading, "yours") for reading in result.readings]
    columns = ("reading", *(f"{name}?" for name in QUESTIONS), "no value")
    if reference is not None:
        readings += [(reading, "anchorlens") for reading in reference.readings]
        columns += ("source",)
    readings.sort(key=lambda item: -item[0].telling)
    rows = [(*_row(reading), whose)[: len(columns)] for reading, whose in readings]
    strong = [reference is not None and whose == "yours" for _, whose in readings]
    return Table(columns, rows, "AUC of each reading", range(1, 2 + len(QUESTIONS)), strong)


def _row(reading: ReadingScore) -> tuple[TableCell | str, ...]:
    n_missing = sum(value is None for value in reading.values.values())
    scores = (reading.scores[name].in_words for name in QUESTIONS)
    return (TableCell(safe_text(reading.name), code=True), *scores, str(n_missing or ""))


def notes(result: Benchmark, reference: Benchmark | None = None) -> Iterator[str]:
    """Yield each question with its numbers of models, the probe's failures, and the source of the rows."""
    for name, question in QUESTIONS.items():
        answers = [question.answer(model.ending, model.outcome) for model in result.models]
        yield f"{name}: {question.asks} {answers.count(True)} against {answers.count(False)} models."
    if result.failures:
        shown = list(result.failures.items())[:MOST_FAILURES]
        said = "; ".join(f"{safe_text(model)}: {safe_text(why)}" for model, why in shown)
        more = len(result.failures) - len(shown)
        rest = f"; and {more:,} more" if more else ""
        yield f"The probe failed on {len(result.failures):,} of {len(result.models):,} models: {said}{rest}."
    if reference is not None:
        asked = len(reference.models)
        here = "" if asked == len(result.models) else f", on all {asked:,} models"
        yield (
            f"Rows of the source anchorlens are the readings of the verdict and WeightWatcher's "
            f"alpha{here} (research/benchmark.md)."
        )


def print_benchmark(result: Benchmark, reference: Benchmark | None = None) -> None:
    """Print the AUC of each reading on each question, together with the readings of a reference.

    Args:
        result: the benchmark to print. The rows of this benchmark are bold if a reference is given.
        reference: a benchmark to compare with. Default: none.
    """
    console = Terminal()
    console.print(overview(result), style="bold")
    console.print(FittedTable(benchmark_table(result, reference)), *notes(result, reference), sep="\n")


TEMPLATE = Path(__file__).parent / "templates/benchmark.html"


@html.register
def benchmark_html(result: Benchmark) -> str:
    """Render the AUCs of the probe's readings and of anchorlens's readings, without JavaScript."""
    ours = reference()
    table = benchmark_table(result, ours).shortened(60)
    return view(TEMPLATE, overview=overview(result), table=table, notes=list(notes(result, ours)))
