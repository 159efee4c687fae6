"""The maps of phases that `status` and notebooks show: a symbol for each seed, with the axes of the page."""

from __future__ import annotations

from dataclasses import dataclass

from anchorlens.extras.sweep.cells import SweepResult
from anchorlens.extras.sweep.diagram.axes import choose_axes, slices
from anchorlens.extras.sweep.diagram.layout import arranged
from anchorlens.extras.sweep.diagram.outcomes import OUTCOMES, Category, outcome

SIGNS = (
    "1, 2, c (2 with commutativity), 3; in conflict i inferential, s symmetric, m mixed, n neither; "
    "without OOD M memorises, O knows that the order does not matter, G generalises; "
    "? undecided, x failed, . missing"
)
"""The meanings of the symbols."""
SIGN_OF = dict(zip(OUTCOMES, "12c32ismnMOG??x.", strict=True))
"""The symbol of each outcome, one character."""
MOST_MAPS = 4
"""The largest number of maps shown."""


@dataclass(frozen=True, eq=False)
class TextMap:
    """The phases of runs that differ only in two axes and the seed."""

    title: str
    """The values that distinguish this map from other maps, or an empty text for a single map."""
    corner: str
    """The fields of both axes: `weight_decay / gamma`."""
    columns: tuple[str, ...]
    """The labels of the columns."""
    rows: tuple[tuple[str, list[list[Category]]], ...]
    """The label of each row, and for each column the outcomes of the runs in the order of the seeds."""


def text_maps(result: SweepResult) -> list[TextMap]:
    """Return a map for each slice of a sweep, with the axes of the phase diagram.

    Args:
        result: a sweep of one or more runs.
    """
    x, y = choose_axes(result.cells)
    maps = []
    for part in slices(result.cells, x, y):
        layout = arranged(part.cells, x, y)
        squares = {(row, column): list(map(outcome, cells)) for column, row, cells in layout.squares}
        columns = range(len(layout.x.labels))
        rows = tuple(
            (label, [squares.get((row, column), []) for column in columns])
            for row, label in enumerate(layout.y.labels if layout.y else [""])
        )
        maps.append(TextMap(part.label, f"{y} / {x}" if y else x, layout.x.labels, rows))
    return maps
