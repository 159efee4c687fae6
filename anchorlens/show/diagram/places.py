"""Where the cells of a map stand: one place for each (x, y), divided into one stripe per seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anchorlens.show.diagram.axes import Axis, also_varying, axis
from anchorlens.sweep.cells import Cell

FILLED = 0.92
"""Share of a place's width and height that its stripes take."""


@dataclass(frozen=True, eq=False)
class Stripe:
    """One cell's part of its place, in units of places."""

    cell: Cell
    """Which."""
    left: float
    """Edge."""
    width: float
    """Of the stripe."""
    bottom: float
    """Edge."""
    height: float
    """Of the stripe."""

    @property
    def centre(self) -> float:
        """Half way across."""
        return self.left + self.width / 2

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top."""
        return self.left, self.left + self.width, self.bottom, self.bottom + self.height


@dataclass(frozen=True, eq=False)
class Place:
    """All cells at one (x, y)."""

    column: int
    """From the left, from 0."""
    row: int
    """From below, from 0."""
    cells: tuple[Cell, ...]
    """In the order of their seeds."""

    @property
    def stripes(self) -> Iterator[Stripe]:
        """From left to right, of equal width."""
        width = FILLED / len(self.cells)
        left, bottom = self.column - FILLED / 2, self.row - FILLED / 2
        for i, cell in enumerate(self.cells):
            yield Stripe(cell, left + i * width, width, bottom, FILLED)


@dataclass(frozen=True, eq=False)
class Layout:
    """A map without its content."""

    x: Axis
    """Across."""
    y: Axis | None
    """Up; None for one row."""
    places: tuple[Place, ...]
    """Those where there is a cell."""

    @property
    def stripes(self) -> list[Stripe]:
        """Of all places."""
        return [stripe for place in self.places for stripe in place.stripes]

    @property
    def most_seeds(self) -> int:
        """Stripes of the place that has most."""
        return max(len(place.cells) for place in self.places)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that say which cell it is."""
        return (self.x.name, *(() if self.y is None else (self.y.name,)), "seed")


def arranged(cells: Sequence[Cell], x: str, y: str | None) -> Layout:
    """Put cells in their places.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Raises:
        ValueError: no cell, or cells that differ in something else.
    """
    if not cells:
        raise ValueError("a map must have at least one cell, got none")
    mixed = also_varying(cells, x, y)
    if mixed:
        allowed = ", ".join(filter(None, (x, y)))
        raise ValueError(
            f"the cells of one map must differ in {allowed} and seed alone, got cells that differ in "
            f"{', '.join(mixed)}; draw one map for each (anchorlens.show.diagram.axes.slices)"
        )
    across, up = axis(cells, x), None if y is None else axis(cells, y)
    found: dict[tuple[int, int], dict[str, Cell]] = {}
    for cell in cells:
        row = 0 if up is None else up.place(cell.fields[up.name])
        found.setdefault((row, across.place(cell.fields[x])), {})[cell.id] = cell
    places = [
        Place(column, row, tuple(sorted(group.values(), key=lambda cell: cell.fields["seed"])))
        for (row, column), group in sorted(found.items())
    ]
    return Layout(across, up, tuple(places))
