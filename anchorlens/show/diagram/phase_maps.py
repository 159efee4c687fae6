"""The phases of a sweep over two axes as signs, for terminals and notebooks."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from anchorlens.safe import printable
from anchorlens.sweep.cells import TROUBLES, Cell, SweepResult, value_key
from anchorlens.tasks.shared.phases import COLOURS

SIGNS = "1, 2, c (2 with commutativity), 3, ? undecided, x failed, . missing"
"""What the signs mean."""
MOST_MAPS = 4
"""Maps that are shown."""

Signs = tuple[tuple[str, str | None], ...]
"""Of the cells of a square, in order of seed: sign, and the phase's colour or None."""


@dataclass(frozen=True, eq=False)
class PhaseMap:
    """The phases of the cells that are alike in everything but two axes and the seed."""

    title: str
    """What they share that those of other maps do not; empty where there is one map."""
    corner: str
    """What is down, and what across."""
    columns: tuple[str, ...]
    """Values across, in words."""
    rows: tuple[tuple[str, tuple[Signs, ...]], ...]
    """Value down, in words, and for each column the signs of its cells."""


def phase_maps(result: SweepResult) -> list[PhaseMap]:
    """Phases over the first two axes beside the seed, those of all seeds in each square, in order of seed.

    Where more fields vary there is a map for each of their combinations.

    Args:
        result: of at least one cell.
    """
    names = [name for name in result.axes if name != "seed"]
    order = ["gamma", "weight_decay", *names]
    across, *others = sorted(names, key=order.index) or ["seed"]
    down, others = (others[0], others[1:]) if others else (None, [])
    slices: dict[tuple[str, ...], dict[tuple[Hashable, Hashable], list[Cell]]] = {}
    for cell in result:
        values = tuple(plain_value(cell.fields[name]) for name in others)
        square = (value_key(cell.fields[across]), value_key(down and cell.fields[down]))
        slices.setdefault(values, {}).setdefault(square, []).append(cell)
    maps = []
    for values, squares in slices.items():
        columns, rows = ({square[i] for square in squares} for i in (0, 1))
        columns = [value for value in result.axes[across] if value_key(value) in columns]
        rows = [value for value in (result.axes[down] if down else [None]) if value_key(value) in rows]

        def signs(row: Any, columns: Sequence[Any] = columns, squares: Any = squares) -> tuple[Signs, ...]:
            keys = [(value_key(column), value_key(row)) for column in columns]
            return tuple(tuple(map(_sign, squares.get(key, ()))) for key in keys)

        title = ", ".join(f"{name} {value}" for name, value in zip(others, values, strict=True))
        words = [plain_value(row) if down else "" for row in rows]
        table = tuple(zip(words, map(signs, rows), strict=True))
        corner = f"{down} / {across}" if down else across
        maps.append(PhaseMap(title, corner, tuple(map(plain_value, columns)), table))
    return maps


def where(cell: Cell, result: SweepResult) -> str:
    """A cell by its values on the axes."""
    return " ".join([cell.id, *(f"{name} {plain_value(cell.fields[name])}" for name in result.axes)])


def plain_value(value: Any) -> str:
    """A value of a field, as short as it can be written."""
    if isinstance(value, str):
        return printable(value)
    return (
        f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)
    )


def _sign(cell: Cell) -> tuple[str, str | None]:
    if cell.status == "missing":
        return ".", None
    if cell.status in TROUBLES:
        return "x", None
    if cell.phase is None:
        return "?", None
    sign = "c" if cell.numbers["commutative"] else str(cell.phase)
    return sign, COLOURS.get(cell.numbers["label"])
