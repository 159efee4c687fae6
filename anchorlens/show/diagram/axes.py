"""The axes of a map, the slices of a sweep, and how values of fields are written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anchorlens.figures.side_by_side import distinct
from anchorlens.runs.run_config import sorted_by_part
from anchorlens.show.formats import plain, short
from anchorlens.sweep.cells import Cell, axes_of, value_key
from anchorlens.sweep.grids import ALIASES

FIRST = ("gamma", "weight_decay", "n_layers", "lr", "n_samples")
"""The default axes, x and y: the first two of these fields that vary."""

TITLES = {
    "gamma": "gamma (larger: smaller initial weights)",
    "weight_decay": "weight decay",
    "n_layers": "layers",
    "n_heads": "heads",
    "lr": "learning rate",
    "n_samples": "training sequences",
}
"""Field -> the title of its axis, where that is not the field's name."""

LONGEST_LABEL = 30


@dataclass(frozen=True)
class Axis:
    """One direction of a map: its values, evenly spaced."""

    name: str
    """Field of the configurations."""
    values: tuple[Any, ...]
    """Ascending, at least one."""
    title: str
    """The title of the axis."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The values as they are written, no two alike."""
        return distinct([value_label(value) for value in self.values])

    def position(self, value: Any) -> int:
        """Where a value stands, from 0."""
        return self._positions[value_key(value)]

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {value_key(value): i for i, value in enumerate(self.values)}


@dataclass(frozen=True, eq=False)
class Slice:
    """The cells of one map: they differ in x, y and the seed alone."""

    label: str
    """The values that set this slice apart from others; empty where there is one slice."""
    cells: tuple[Cell, ...]
    """In the order of the sweep."""


def value_label(value: Any) -> str:
    """A value as it stands at an axis, of at most 30 characters."""
    return short(plain(value), LONGEST_LABEL)


def name_of_cell(cell: Cell, fields: Iterable[str]) -> str:
    """Which cell it is, in words: `gamma 0.3, seed 0`."""
    return ", ".join(f"{name} {value_label(cell.fields[name])}" for name in fields)


def choose_axes(cells: Sequence[Cell], x: str | None = None, y: str | None = None) -> tuple[str, str | None]:
    """Choose the fields of the axes.

    Args:
        cells: of a sweep.
        x: field asked for across, or one of `grids.ALIASES`; None to choose.
        y: field asked for up; None to choose.

    Returns:
        Two fields; None for y where nothing is left to stand there: a map of one row. Chosen are, in this
        order, gamma, weight decay, layers, learning rate and training sequences as far as they vary, then
        any number that varies.

    Raises:
        ValueError: no such field, the same one twice, or the seed, which is within each square.
    """
    asked = {direction: _field(direction, name) for direction, name in (("x", x), ("y", y)) if name}
    if len(set(asked.values())) < len(asked):
        raise ValueError(f"x and y must be two fields, got {asked['x']!r} for both; try x='gamma'")
    varying = axes_of(cells)
    numbers = [name for name, values in varying.items() if name != "seed" and all(map(_is_number, values))]
    free = [name for name in (*FIRST, *(name for name in numbers if name not in FIRST)) if name in varying]
    free = [name for name in free if name not in asked.values()]
    across = asked.get("x") or next(iter(free), None) or next(n for n in FIRST if n not in asked.values())
    free = [name for name in free if name != across and not goes_with(cells, across, name)]
    return across, asked.get("y") or next(iter(free), None)


def axis(cells: Sequence[Cell], name: str, varying: Mapping[str, tuple[Any, ...]]) -> Axis:
    """The values that a field takes in these cells, and with which other fields it goes.

    Args:
        cells: at least one.
        name: of the field.
        varying: `axes_of(cells)`.
    """
    values = varying.get(name) or (cells[0].fields[name],)
    others = [other for other in varying if other not in (name, "seed") and goes_with(cells, name, other)]
    title = TITLES.get(name, name)
    return Axis(name, values, f"{title}; with it {', '.join(others)}" if others else title)


def goes_with(cells: Sequence[Cell], name: str, other: str) -> bool:
    """Whether two fields vary together: each value of one stands with one value of the other."""
    pairs = {(value_key(cell.fields[name]), value_key(cell.fields[other])) for cell in cells}
    return len(pairs) > 1 and all(len({pair[i] for pair in pairs}) == len(pairs) for i in (0, 1))


def also_varying(cells: Sequence[Cell], varying: Iterable[str], x: str, y: str | None) -> list[str]:
    """The fields that vary besides x, y, the seed and the fields that vary with x or y."""
    on_axes = [name for name in (x, y) if name is not None]
    others = [name for name in varying if name not in (*on_axes, "seed")]
    return [name for name in others if not any(goes_with(cells, shown, name) for shown in on_axes)]


def slices(cells: Sequence[Cell], x: str, y: str | None) -> tuple[Slice, ...]:
    """Group the cells by all other fields that vary; each group is one map.

    Args:
        cells: of a sweep.
        x: field across.
        y: field up; None for a map of one row.

    Returns:
        One for each combination that occurs: the largest first, then ascending.
    """
    varying = axes_of(cells)
    axes: list[Axis] = []
    for name in also_varying(cells, varying, x, y):
        if not any(goes_with(cells, earlier.name, name) for earlier in axes):
            axes.append(axis(cells, name, varying))
    groups: dict[tuple[int, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(a.position(cell.fields[a.name]) for a in axes), []).append(cell)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        Slice(", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(axes, place, strict=True)), tuple(group))
        for place, group in ordered
    )


def _field(direction: str, name: str) -> str:
    """A field by its name or its short name."""
    field = ALIASES.get(name, name)
    sorted_by_part({field: None})
    if field == "seed":
        raise ValueError(
            f"{direction} must not be the seed: seeds stand side by side within each square; try 'gamma'"
        )
    return field


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
