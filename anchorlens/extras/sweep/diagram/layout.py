"""Positions of the cells in a map: one square for each (x, y), divided into one band per seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from anchorlens.extras.sweep.cells import Cell, axes_of
from anchorlens.extras.sweep.diagram import outcomes
from anchorlens.extras.sweep.diagram.axes import Axis, also_varying, axis
from anchorlens.extras.sweep.diagram.outcomes import Category, agreement, description, outcome

FILLED = 0.92
"""Share of a square's width and height that its bands take."""


class Band(NamedTuple):
    """One cell's part of its square; the distance from one square to the next is 1."""

    cell: Cell
    """The cell, a run of one seed."""
    left: float
    """Left edge; the middle of the first column is 0."""
    width: float
    """Width, at most `FILLED`."""
    bottom: float
    """Lower edge; the middle of the lowest row is 0."""

    @property
    def centre(self) -> float:
        """Horizontal centre."""
        return self.left + self.width / 2

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top."""
        return self.left, self.left + self.width, self.bottom, self.bottom + FILLED


class Square(NamedTuple):
    """All cells at one (x, y)."""

    column: int
    """Column index from the left, from 0."""
    row: int
    """Row index from below, from 0."""
    cells: tuple[Cell, ...]
    """The cells in the order of their seeds."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The geometry of a map, without its colours and texts."""

    x: Axis
    """The field along the horizontal axis."""
    y: Axis | None
    """The field along the vertical axis; None for one row."""
    squares: tuple[Square, ...]
    """The squares with at least one cell, row by row from below."""

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """The bands of all squares; each square is divided from left to right into equal widths."""
        return tuple(
            Band(cell, column + FILLED * (i / len(cells) - 0.5), FILLED / len(cells), row - FILLED / 2)
            for column, row, cells in self.squares
            for i, cell in enumerate(cells)
        )

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """A cell's id -> the text shown under the pointer."""
        fields = [self.x.name, *([] if self.y is None else [self.y.name]), "seed"]
        return {band.cell.id: description(band.cell, fields) for band in self.bands}

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, column by column."""
        columns = sorted(self.squares, key=lambda square: (square.column, square.row))
        return [cell for square in columns for cell in square.cells]

    def by_category(self, category_of: Callable[[Cell], Category]) -> dict[Category, list[Band]]:
        """The bands of each category that occurs."""
        groups: dict[Category, list[Band]] = {}
        for band in self.bands:
            groups.setdefault(category_of(band.cell), []).append(band)
        return groups


def arranged(cells: Sequence[Cell], x: str, y: str | None) -> Layout:
    """Put cells in their squares.

    Args:
        cells: at least one; they differ only in x, y, the seed and fields that vary with x or y.
        x: horizontal field of the configurations.
        y: vertical field; None for one row.

    Raises:
        ValueError: no cell, or cells that differ in something else.
    """
    if not cells:
        raise ValueError("a map must have at least one cell, got none")
    varying = axes_of(cells)
    if mixed := also_varying(cells, varying, x, y):
        allowed = ", ".join(filter(None, (x, y)))
        raise ValueError(
            f"the cells of one map must differ in {allowed} and seed alone, got cells that differ in "
            f"{', '.join(mixed)}; draw one map for each (anchorlens.extras.sweep.diagram.axes.slices)"
        )
    across, up = axis(cells, x, varying), None if y is None else axis(cells, y, varying)
    groups: dict[tuple[int, int], dict[str, Cell]] = {}
    for cell in cells:
        row = 0 if up is None else up.position(cell.fields.get(up.name))
        groups.setdefault((row, across.position(cell.fields.get(x))), {})[cell.id] = cell
    squares = [
        Square(column, row, tuple(sorted(group.values(), key=lambda cell: cell.fields["seed"])))
        for (row, column), group in sorted(groups.items())
    ]
    return Layout(across, up, tuple(squares))


@dataclass(frozen=True, eq=False)
class Summary:
    """How many cells of a map have each outcome, and how often seeds and verdicts agree."""

    outcomes: Mapping[Category, int]
    """Outcome -> number of cells, in the order of `OUTCOMES`; only outcomes that occur."""
    n_voting: int
    """Number of squares with two or more trained seeds, at least one of which has a phase or a solution."""
    n_unanimous: int
    """Number of those squares whose trained seeds all have the same one."""
    n_compared: int
    """Number of cells where behaviour and the probes both name a phase."""
    n_agreeing: int
    """Number of those cells where both name the same phase."""

    @property
    def words(self) -> str:
        """The counts in a sentence."""
        counts = ", ".join(f"{n} {category.name}" for category, n in self.outcomes.items())
        seeds = f"; seeds agree in {self.n_unanimous} of {self.n_voting} squares" if self.n_voting else ""
        compared = f"; verdicts agree in {self.n_agreeing} of {self.n_compared} cells"
        return f"{counts}{seeds}{compared if self.n_compared else ''}"


def summary(layout: Layout) -> Summary:
    """Count the outcomes of the cells of a map."""
    counts, compared = (Counter(map(what, layout.cells)) for what in (outcome, agreement))
    untrained = (outcomes.FAILED, outcomes.MISSING)
    votes = [
        [vote for vote in map(outcome, square.cells) if vote not in untrained] for square in layout.squares
    ]
    votes = [seeds for seeds in votes if len(seeds) > 1 and not set(seeds).isdisjoint(outcomes.NAMED)]
    return Summary(
        outcomes={category: counts[category] for category in outcomes.OUTCOMES if counts[category]},
        n_voting=len(votes),
        n_unanimous=sum(len(set(seeds)) == 1 for seeds in votes),
        n_compared=compared[outcomes.AGREE] + compared[outcomes.DISAGREE],
        n_agreeing=compared[outcomes.AGREE],
    )
