"""The outcomes of cells as maps draw them (name, sign, colour, hatch), and summaries over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from anchorlens.extras.sweep.cells import TROUBLES, Cell
from anchorlens.extras.sweep.diagram.axes import name_of_cell
from anchorlens.plots import BLUE, GREY, ORANGE, plotly_text
from anchorlens.tasks import COLOURS, FIT_THRESHOLD, ID_THRESHOLD, LABELS, SOLUTION_COLOURS

CLEAR = "rgba(0,0,0,0)"
INK = "#808080"
"""The colour of hatches and outlines; its contrast is at least 3.9:1 to white and to the dark page."""
MOST_SIGNS = 4
"""The largest number of seeds whose symbols are written singly; the symbols of more seeds are counted."""
MOST_LINES = 3


@dataclass(frozen=True)
class Category:
    """An outcome of a run.

    The outcomes of a map differ in symbol or hatch, so that a map is readable without colours.
    """

    name: str
    """The name in the legend."""
    sign: str
    """The symbol in the map."""
    colour: str
    """The CSS colour."""
    hatch: str = ""
    """The plotly name of the pattern over the colour."""
    ink: str = INK
    """The colour of the hatch."""


MISSING = Category("not trained yet", "·", CLEAR)
FAILED = Category("failed or diverged", "×", CLEAR, "x")
UNDERFIT = Category("underfit: no phase", "?", "#C9CED6", "/")
UNDECIDED = Category("undecided, though fit", "?", GREY)
UNMEASURED = Category("not defined for it", "–", CLEAR, ".")
NEVER = Category("does not pass", "–", CLEAR, ".")

PHASES = tuple(
    Category(label, sign, COLOURS[label]) for label, sign in zip(LABELS, ("1", "2", "2c", "3"), strict=True)
)
EITHER = Category("Phase 2, with or without commutativity", "2?", COLOURS[LABELS[1]], "-", COLOURS[LABELS[2]])
"""Phase 2 with a commutativity too close to its threshold to decide; hatched in the colour of `with`."""
_OF_SOLUTIONS = tuple(  # the labels by the probes, which come last, are no outcomes
    Category(label, sign, colour)
    for (label, colour), sign in zip(SOLUTION_COLOURS.items(), "ismnMOG", strict=False)
)
SOLUTIONS, LEARNT = _OF_SOLUTIONS[:4], _OF_SOLUTIONS[4:]
"""The outcomes of runs whose training data conflict with the composition, and of tasks without OOD."""
NAMED = (*PHASES, EITHER, *SOLUTIONS, *LEARNT)
"""The outcomes of runs that have a phase or a solution."""
_BY_LABEL = {category.name: category for category in NAMED} | {"Phase 2": EITHER}
OUTCOMES = (*NAMED, UNDECIDED, UNDERFIT, FAILED, MISSING)
"""The outcomes by behaviour."""

COMPREHENSION_STEPS = 1_000
"""The number of steps between fitting and generalising: runs below it comprehend, later runs grok."""
COMPREHENSION = Category("comprehension", "C", COLOURS[LABELS[3]])
GROKKING = Category("grokking", "G", COLOURS[LABELS[2]])
MEMORISATION = Category("memorisation", "M", COLOURS[LABELS[0]])
CONFUSION = Category("confusion", "F", "#C9CED6", "/")
NO_LOG = Category("no log", "–", GREY)
COURSES = (COMPREHENSION, GROKKING, MEMORISATION, CONFUSION, NO_LOG, FAILED, MISSING)
"""The courses of runs of tasks without OOD. Source: Liu et al., arXiv 2205.10343."""

AGREE = Category("agree", "=", BLUE)
DISAGREE = Category("disagree", "≠", ORANGE)
NO_COMPARISON = Category("not compared: one of them names no phase", "?", GREY)
AGREEMENTS = (AGREE, DISAGREE, NO_COMPARISON, UNDERFIT, FAILED, MISSING)
"""The outcomes of comparing behaviour and the probes."""


def trouble(cell: Cell) -> Category | None:
    """Return the category of a failed, missing or underfit run, or None for any other run."""
    if cell.status in TROUBLES:
        return FAILED
    if cell.phase is None:
        return MISSING
    return UNDERFIT if cell.phase.cause == "underfit" else None


def outcome(cell: Cell) -> Category:
    """Return the behavioural outcome of a run, which is one of `OUTCOMES`."""
    problem, phase = trouble(cell), cell.phase
    if problem is not None or phase is None:
        return problem or MISSING
    return _BY_LABEL.get(phase.label, UNDECIDED)


def course(cell: Cell) -> Category:
    """Return the course of a run's training, which is one of `COURSES`.

    A course describes a run of a task without OOD inputs. An accuracy passes 0.90 at the first step from
    which the accuracy stays at 0.90 or more.

    The course is comprehension if held-out accuracy passes 0.90 less than 1,000 steps after train accuracy
    passes 0.90. The course is grokking if held-out accuracy passes 0.90 at least 1,000 steps after train
    accuracy passes 0.90. The course is memorisation if only train accuracy passes 0.90, and confusion if
    train accuracy does not pass 0.90. If a final accuracy is at least 0.90 but the step of passing 0.90 is
    missing, the course is `NO_LOG`.
    """
    problem, numbers = trouble(cell), cell.numbers
    if problem in (FAILED, MISSING):
        return problem
    train, id = numbers.get("train_passed_at"), numbers.get("id_passed_at")
    ends = ((train, numbers["train"], FIT_THRESHOLD), (id, numbers["id"], ID_THRESHOLD))
    if any(step is None and value is not None and value >= least for step, value, least in ends):
        return NO_LOG
    if train is None:
        return CONFUSION
    if id is None:
        return MEMORISATION
    return COMPREHENSION if id - train < COMPREHENSION_STEPS else GROKKING


def agreement(cell: Cell) -> Category:
    """Return the agreement of a run's behavioural and probe verdicts, which is one of `AGREEMENTS`."""
    same_phase = {True: AGREE, False: DISAGREE, None: NO_COMPARISON}
    return trouble(cell) or same_phase[cell.numbers["agreement"]]


def measured(cell: Cell, number: str) -> float | None:
    """Return a measurement of a run, or None if the value is missing or the run has no usable model."""
    return None if trouble(cell) in (FAILED, MISSING) else cell.numbers.get(number)


def check_measured(cells: Sequence[Cell], number: str, title: str) -> None:
    """Check that at least one run has a measurement that can be drawn.

    Raises:
        ValueError: If no run has the measurement.
    """
    if all(measured(cell, number) is None for cell in cells):
        raise ValueError(f"at least one run must have a value of {title}, got none. Draw another map")


def vote(categories: Sequence[Category]) -> str:
    """Describe the agreement of a square's seeds.

    Args:
        categories: the categories of the seeds, in order.

    Returns:
        A text in plotly's markup. If all seeds agree on a phase, the text is the symbol of the phase and the
        number of seeds. If all seeds agree on an outcome without a phase, the text is the symbol of the
        outcome. If the seeds disagree, the text lists each seed's symbol. With more than four seeds, the text
        lists the most frequent symbols with their counts. The text is empty if all seeds are untrained.

    >>> vote(PHASES[3:] * 3), vote([PHASES[1], PHASES[3], PHASES[3]]), vote([UNDERFIT] * 3)
    ('<b>3</b><br>3 of 3', '2|3|3', '<b>?</b>')
    """
    n, counts = len(categories), Counter(categories).most_common()
    if len(counts) == 1:
        agree = n > 1 and categories[0] in (*NAMED, AGREE, DISAGREE)
        sign = f"<b>{categories[0].sign}</b>" + (f"<br>{n} of {n}" if agree else "")
        return "" if categories[0] is MISSING else sign
    if n <= MOST_SIGNS:
        return "|".join(category.sign for category in categories)
    lines = [f"<b>{category.sign}</b> {k} of {n}" for category, k in counts[:MOST_LINES]]
    return "<br>".join(lines[:-1] + ["…"] if len(counts) > MOST_LINES else lines)


def mean(cells: Sequence[Cell], number: str, spec: str = ".2f") -> str:
    """Format the mean of a measurement over a square's seeds.

    If some seeds lack the measurement, the text includes the number of seeds that have a value.

    >>> mean([], "ood")
    ''
    """
    values = [value for cell in cells if (value := measured(cell, number)) is not None]
    if not values:
        return ""
    text = f"{sum(values) / len(values):{spec}}"
    return text if len(values) == len(cells) else f"{text}<br>{len(values)} of {len(cells)}"


def description(cell: Cell, fields: Sequence[str]) -> str:
    """Return the hover text of a run, in plotly's markup.

    Args:
        cell: a run of a sweep.
        fields: the configuration fields that identify the run.
    """
    lines = [name_of_cell(cell, fields)]
    numbers = cell.numbers
    if numbers:
        lines.append(f"by behaviour: {numbers['label']}")
        lines.append(f"by the probes: {numbers['by_probes_label']}")
        measures = ((metric.title, numbers[metric.name]) for metric in cell.run.task.metrics)
        lines += wrap(", ".join(f"{title} {value:.3f}" for title, value in measures if value is not None), 60)
        if numbers.get("stable_rank.w_q") is not None:
            lines.append(f"stable rank of W_Q {numbers['stable_rank.w_q']:.2f}")
    step = numbers.get("step")
    lines.append(cell.status if step is None else f"{cell.status} after {step:,} steps")
    lines += wrap(cell.error or "", 60)[:4]
    lines.append(f"cell {cell.id}")
    return "<br>".join(map(plotly_text, lines))
