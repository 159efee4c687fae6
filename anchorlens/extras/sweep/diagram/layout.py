"""Positions of the cells in a map: one square for each (x, y), divided into one band per seed or in text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from anchorlens.extras.sweep.cells import Cell, SweepResult, axes_of
from anchorlens.extras.sweep.diagram import outcomes
from anchorlens.extras.sweep.diagram.axes import Axis, also_varying, axis, choose_axes, slices
from anchorlens.extras.sweep.diagram.outcomes import Category, description, outcome
from anchorlens.show import Table, TableCell

FILLED = 0.92
"""The proportion of a square's width and height that its bands take."""


class Band(NamedTuple):
    """The part of a square for one run, in units of the distance between neighbouring squares."""

    cell: Cell
    """The run."""
    left: float
    """The left edge, where 0 is the middle of the first column."""
    width: float
    """The width, at most `FILLED`."""
    bottom: float
    """The lower edge, where 0 is the middle of the lowest row."""

    @property
    def centre(self) -> float:
        """The horizontal centre."""
        return self.left + self.width / 2

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The left, right, bottom and top edges of the band."""
        return self.left, self.left + self.width, self.bottom, self.bottom + FILLED


class Square(NamedTuple):
    """The runs at one combination of x and y."""

    column: int
    """The column index from the left, from 0."""
    row: int
    """The row index from below, from 0."""
    cells: tuple[Cell, ...]
    """The runs in the order of their seeds."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The positions of all squares and bands of a map."""

    x: Axis
    """The field along the horizontal axis."""
    y: Axis | None
    """The field along the vertical axis, or None for one row."""
    squares: tuple[Square, ...]
    """The squares with at least one run, row by row from below."""

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """The bands of all squares. The bands of one square lie side by side and have equal widths."""
        return tuple(
            Band(cell, column + FILLED * (i / len(cells) - 0.5), FILLED / len(cells), row - FILLED / 2)
            for column, row, cells in self.squares
            for i, cell in enumerate(cells)
        )

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """A map from the id of each run to the hover text of the run."""
        fields = [self.x.name, *([] if self.y is None else [self.y.name]), "seed"]
        return {band.cell.id: description(band.cell, fields) for band in self.bands}

    @cached_property
    def cells(self) -> list[Cell]:
        """The runs in the order of the columns."""
        columns = sorted(self.squares, key=lambda square: (square.column, square.row))
        return [cell for square in columns for cell in square.cells]

    @cached_property
    def counts(self) -> dict[Category, int]:
        """The number of runs with each outcome, in the order of `OUTCOMES`."""
        counts = Counter(map(outcome, self.cells))
        return {category: counts[category] for category in outcomes.OUTCOMES if counts[category]}

    def by_category(self, category_of: Callable[[Cell], Category]) -> dict[Category, list[Band]]:
        """Return the bands of each category in the layout."""
        groups: dict[Category, list[Band]] = {}
        for band in self.bands:
            groups.setdefault(category_of(band.cell), []).append(band)
        return groups


def arranged(cells: Sequence[Cell], x: str, y: str | None) -> Layout:
    """Arrange runs in squares.

    Args:
        cells: one or more runs. The runs may differ only in x, y, the seed and fields that vary together with
            x or y.
        x: the horizontal field of the configurations.
        y: the vertical field, or None for one row.

    Raises:
        ValueError: If there are no runs, or the runs differ in a field that the map does not show.
    """
    if not cells:
        raise ValueError("a map must have at least one run, got none. Give the runs of a sweep.")
    varying = axes_of(cells)
    if mixed := also_varying(cells, varying, x, y):
        allowed = ", ".join(filter(None, (x, y)))
        raise ValueError(
            f"the runs of one map must differ only in {allowed} and seed, got runs that differ in "
            f"{', '.join(mixed)}. Draw a separate map for each value "
            "(anchorlens.extras.sweep.diagram.axes.slices)."
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


SIGN_OF = dict(zip(outcomes.OUTCOMES, "12c32ismnMOG??x.", strict=True))
"""The symbol of each outcome, one character."""
MOST_MAPS = 4
"""The largest number of maps shown."""


def symbols(cells: Iterable[Cell]) -> str:
    """Return the meanings of the symbols that `phase_tables` draws for these runs."""
    found = set(map(outcome, cells))
    meanings = (f"{sign} {one.name}" for one, sign in SIGN_OF.items() if one in found)
    return f"One symbol per seed: {'; '.join(meanings)}"


def phase_tables(result: SweepResult) -> list[Table]:
    """Return a table of phases for each slice of a sweep, with the axes of the phase diagram.

    A square has a symbol for each seed, in the order of the seeds.

    Args:
        result: a sweep of one or more runs.
    """
    x, y = choose_axes(result.cells)
    tables = []
    for part in slices(result.cells, x, y):
        layout = arranged(part.cells, x, y)
        rows = [[label, *[""] * len(layout.x.labels)] for label in (layout.y.labels if layout.y else [""])]
        for column, row, cells in layout.squares:
            rows[row][column + 1] = "".join(SIGN_OF[outcome(cell)] for cell in cells)
        columns = (TableCell(f"{y} / {x}" if y else x), *layout.x.labels)
        tables.append(Table(columns, rows, part.label))
    return tables
