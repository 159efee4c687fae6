"""What is written in a place: how its seeds voted, or the mean of their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from anchorlens.show.diagram.looks import FAILED, MISSING, UNMEASURED, Look, trouble
from anchorlens.sweep.cells import Cell

MOST_SIGNS = 4
"""Seeds whose votes are written one by one; those of more are counted."""
MOST_LINES = 3


def vote(looks: Sequence[Look]) -> str:
    """How the seeds of a place voted.

    Args:
        looks: of the seeds, in order.

    Returns:
        The sign and how many agree where all do; else each one's sign, or for many seeds each sign with its
        number; nothing where nothing is trained. The markup is plotly's.

    >>> from anchorlens.show.diagram.looks import PHASES
    >>> vote(PHASES[3:] * 3), vote([PHASES[1], PHASES[3], PHASES[3]])
    ('<b>3</b><br>3 of 3', '2|3|3')
    """
    if all(look is MISSING for look in looks):
        return ""
    if len(set(looks)) == 1:
        sign = f"<b>{looks[0].sign}</b>"
        return sign if len(looks) == 1 else f"{sign}<br>{len(looks)} of {len(looks)}"
    if len(looks) <= MOST_SIGNS:
        return "|".join(look.sign for look in looks)
    counts = Counter(looks).most_common()
    lines = [f"<b>{look.sign}</b> {n} of {len(looks)}" for look, n in counts[:MOST_LINES]]
    return "<br>".join(lines[: MOST_LINES - 1] + ["…"] if len(counts) > MOST_LINES else lines)


def mean(cells: Sequence[Cell], number: str, spec: str = ".2f") -> str:
    """The mean of a number over the seeds of a place, and how many have it where not all do.

    >>> mean([], "ood")
    ''
    """
    values = [value for value in (measured(cell, number) for cell in cells) if value is not None]
    if not values:
        return ""
    text = f"{sum(values) / len(values):{spec}}"
    return text if len(values) == len(cells) else f"{text}<br>{len(values)} of {len(cells)}"


def measured(cell: Cell, number: str) -> float | None:
    """A number of a cell; None where there is none, or where training failed or diverged."""
    return None if trouble(cell) in (FAILED, MISSING) else cell.numbers.get(number)


def kinds(cells: Iterable[Cell], number: str) -> dict[Look | None, list[Cell]]:
    """Cells by what stands against their number: None where nothing does."""
    found: dict[Look | None, list[Cell]] = {}
    for cell in cells:
        look = trouble(cell)
        if look not in (FAILED, MISSING) and measured(cell, number) is None:
            look = UNMEASURED
        found.setdefault(look, []).append(cell)
    return found


def check_measured(cells: Sequence[Cell], number: str, title: str, why: str) -> None:
    """Check that there is something to draw.

    Raises:
        ValueError: no cell has the number; `why` says what that means.
    """
    if any(measured(cell, number) is not None for cell in cells):
        return
    if all(trouble(cell) in (FAILED, MISSING) for cell in cells):
        raise ValueError(f"no cell here is trained, so that there is no {title} to draw")
    raise ValueError(f"no cell here has the number {title}: {why}")
