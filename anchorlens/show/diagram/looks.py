"""What became of a cell, as it is drawn: a name, a sign and a colour, told apart without colour too."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from anchorlens.figures import BLUE, GREY, ORANGE
from anchorlens.figures.picture import plotly_text
from anchorlens.show.diagram.axes import value_label
from anchorlens.sweep.cells import ACCURACIES, TROUBLES, Cell
from anchorlens.tasks.phases import COLOURS, LABELS

ACCURACY_NAMES = {name: name.upper() if name in ("id", "ood") else name for name in ACCURACIES}
"""Accuracy -> as it is written."""

CLEAR = "rgba(0,0,0,0)"
INK = "#808080"
"""Of hatches and outlines: at least 3.9:1 against white and against the dark page."""


@dataclass(frozen=True)
class Look:
    """One kind of cell."""

    name: str
    """In the legend."""
    sign: str
    """In the map."""
    colour: str
    """Of its stripe."""
    hatch: str = ""
    """plotly's name of the pattern over it."""
    ink: str = INK
    """Of the hatch."""


MISSING = Look("not trained yet", "·", CLEAR)
FAILED = Look("failed or diverged", "×", CLEAR, "x")
UNDERFIT = Look("underfit: no phase", "?", "#C9CED6", "/")
UNDECIDED = Look("undecided, though fit", "?", GREY)
UNMEASURED = Look("not defined for it", "–", CLEAR, ".")

PHASES = tuple(
    Look(label, sign, COLOURS[label]) for label, sign in zip(LABELS, ("1", "2", "2c", "3"), strict=True)
)
EITHER = Look("Phase 2, with or without commutativity", "2?", COLOURS[LABELS[1]], "-", COLOURS[LABELS[2]])
"""Phase 2 whose commutativity is too near to its threshold to tell; hatched in the colour of `with`."""
OUTCOMES = (*PHASES, EITHER, UNDECIDED, UNDERFIT, FAILED, MISSING)
"""What a cell can come to by behaviour."""

AGREE, DISAGREE, NO_COMPARISON = (
    Look("agree", "=", BLUE),
    Look("disagree", "≠", ORANGE),
    Look("no comparison: one of them names no phase", "?", GREY),
)
AGREEMENTS = (AGREE, DISAGREE, NO_COMPARISON, UNDERFIT, FAILED, MISSING)
"""What behaviour and mechanism of a cell can come to."""


def trouble(cell: Cell) -> Look | None:
    """Why a cell's numbers do not describe a model that has fit its data; None where they do."""
    if cell.status in TROUBLES:
        return FAILED
    if cell.outcome is None:
        return MISSING
    return UNDERFIT if cell.outcome.cause == "underfit" else None


def outcome(cell: Cell) -> Look:
    """What a cell came to by behaviour: one of `OUTCOMES`."""
    found, phase = trouble(cell), cell.outcome
    if found is not None or phase is None:
        return found or MISSING
    if phase.phase == 2 and phase.commutative is None:
        return EITHER
    return next((look for look in PHASES if look.name == phase.label), UNDECIDED)


def agreement(cell: Cell) -> Look:
    """Whether behaviour and mechanism of a cell name one phase: one of `AGREEMENTS`."""
    found = trouble(cell)
    if found is not None:
        return found
    return {True: AGREE, False: DISAGREE, None: NO_COMPARISON}[cell.numbers["agreement"]]


def told(cell: Cell, fields: tuple[str, ...]) -> str:
    """What is known of a cell, in the markup that plotly reads.

    Args:
        cell: to tell of.
        fields: of the configuration, that say which cell it is.
    """
    lines = [", ".join(f"{name} {value_label(cell.fields[name])}" for name in fields)]
    numbers = cell.numbers
    if numbers:
        lines.append(f"behaviour: {numbers['label']}")
        lines.append(f"mechanism: {numbers['mechanism_label']}")
        named = [(ACCURACY_NAMES[name], numbers[name]) for name in ACCURACIES if numbers[name] is not None]
        lines += wrap(", ".join(f"{name} {value:.3f}" for name, value in named), 60)
        if numbers.get("stable_rank.w_q") is not None:
            lines.append(f"stable rank of W_Q {numbers['stable_rank.w_q']:.2f}")
    step = numbers.get("step")
    lines.append(cell.status if step is None else f"{cell.status} after {step:,} steps")
    lines += wrap(cell.error or "", 60)[:4]
    lines.append(f"cell {cell.id}")
    return "<br>".join(map(plotly_text, lines))
