"""The phases of a sweep over two axes as signs, for terminals and notebooks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorlens.foreign import printable
from anchorlens.sweep.cells import TROUBLES, Cell, SweepResult
from anchorlens.tasks.phases import COLOURS

SIGNS = "1, 2, c (2 with commutativity), 3, ? undecided, x failed, . missing"
"""What the signs mean."""
MOST_MAPS = 4
"""Maps that are shown."""


@dataclass(frozen=True, eq=False)
class PhaseMap:
    """The phases of the cells that are alike in everything but two axes and the seed."""

    title: str
    """What they share that those of other maps do not; empty where there is one map."""
    corner: str
    """What is down, and what across."""
    columns: tuple[str, ...]
    """Values across, in words."""
    rows: tuple[tuple[str, tuple[tuple[tuple[str, str | None], ...], ...]], ...]
    """Value down, in words, and for each column the cells in order: sign, and the phase's colour or None."""


def phase_maps(result: SweepResult) -> list[PhaseMap]:
    """Phases over the first two axes beside the seed, those of all seeds in each place, in order of seed.

    Where more fields vary there is a map for each of their combinations.

    Args:
        result: of at least one cell.
    """
    names = [name for name in result.axes if name != "seed"]
    order = ["gamma", "weight_decay", *names]
    across, *others = sorted(names, key=order.index) or ["seed"]
    down, others = (others[0], others[1:]) if others else (None, [])
    slices: dict[tuple[str, ...], list[Cell]] = {}
    for cell in result:
        slices.setdefault(tuple(plain_value(cell.fields[name]) for name in others), []).append(cell)
    maps = []
    for values, cells in slices.items():
        columns = _present(cells, across, result)
        rows = []
        for row in _present(cells, down, result) if down else (None,):
            here = [c for c in cells if down is None or c.fields[down] == row]
            places = [tuple(map(_sign, (c for c in here if c.fields[across] == value))) for value in columns]
            rows.append(("" if down is None else plain_value(row), tuple(places)))
        maps.append(
            PhaseMap(
                title=", ".join(f"{name} {value}" for name, value in zip(others, values, strict=True)),
                corner=f"{down} / {across}" if down else across,
                columns=tuple(map(plain_value, columns)),
                rows=tuple(rows),
            )
        )
    return maps


def where(cell: Cell, result: SweepResult) -> str:
    """A cell by its place on the axes."""
    return " ".join([cell.id, *(f"{name} {plain_value(cell.fields[name])}" for name in result.axes)])


def plain_value(value: Any) -> str:
    """A value of a field, as short as it can be told."""
    if isinstance(value, str):
        return printable(value)
    return (
        f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)
    )


def _present(cells: Sequence[Cell], name: str, result: SweepResult) -> list[Any]:
    """The values of an axis that some of these cells have, ascending."""
    return [value for value in result.axes[name] if any(cell.fields[name] == value for cell in cells)]


def _sign(cell: Cell) -> tuple[str, str | None]:
    if cell.status == "missing":
        return ".", None
    if cell.status in TROUBLES:
        return "x", None
    if cell.phase is None:
        return "?", None
    sign = "c" if cell.numbers["commutative"] else str(cell.phase)
    return sign, COLOURS.get(cell.numbers["label"])
