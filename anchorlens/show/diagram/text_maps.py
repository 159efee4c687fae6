"""The maps of phases that `status` and notebooks show: a sign for each seed, the axes those of the page."""

from __future__ import annotations

from dataclasses import dataclass

from anchorlens.show.diagram.axes import choose_axes, slices
from anchorlens.show.diagram.layout import arranged
from anchorlens.show.diagram.outcomes import OUTCOMES, Category, outcome
from anchorlens.sweep.cells import SweepResult

SIGNS = (
    "1, 2, c (2 with commutativity), 3; in conflict i inferential, s symmetric, m mixed, n neither; "
    "? undecided, x failed, . missing"
)
"""What the signs mean."""
SIGN_OF = dict(zip(OUTCOMES, "12c32ismn??x.", strict=True))
"""Outcome -> its sign, one letter."""
MOST_MAPS = 4
"""Maps that are shown."""


@dataclass(frozen=True, eq=False)
class TextMap:
    """The phases of the cells that are alike in everything but two axes and the seed."""

    title: str
    """The values that set this map apart from others; empty where there is one map."""
    corner: str
    """The fields of both axes: `weight_decay / gamma`."""
    columns: tuple[str, ...]
    """Values across, in words."""
    rows: tuple[tuple[str, list[list[Category]]], ...]
    """Value down, in words, and for each column what its cells came to, in order of seed."""


def text_maps(result: SweepResult) -> list[TextMap]:
    """A map for each slice of a sweep, with the axes that its page has.

    Args:
        result: of at least one cell.
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
