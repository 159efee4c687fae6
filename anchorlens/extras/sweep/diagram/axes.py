"""The axes of a map, the slices of a sweep, and the labels of field values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anchorlens.extras.sweep.cells import Cell, SweepResult, axes_of, value_key
from anchorlens.extras.sweep.grids import ALIASES
from anchorlens.plots import distinct
from anchorlens.recipes import sorted_by_part
from anchorlens.show import plain, short
from anchorlens.texts import safe_text

FIRST = ("gamma", "weight_decay", "n_layers", "lr", "n_samples")
"""The default axes, x and y, are the first two of these fields that vary."""

TITLES = {
    "gamma": "gamma (larger: smaller initial weights)",
    "weight_decay": "weight decay",
    "n_layers": "layers",
    "n_heads": "heads",
    "lr": "learning rate",
    "n_samples": "training sequences",
}
"""The axis title of each field whose title differs from its name."""

LONGEST_LABEL = 30


@dataclass(frozen=True)
class Axis:
    """An axis of a map, with evenly spaced values."""

    name: str
    """The field of the configurations."""
    values: tuple[Any, ...]
    """One or more values, ascending."""
    title: str
    """The title of the axis."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the values. All labels are different."""
        return distinct([value_label(value) for value in self.values])

    def position(self, value: object) -> int:
        """Return the index of a value, from 0."""
        return self._positions[value_key(value)]

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {value_key(value): i for i, value in enumerate(self.values)}


@dataclass(frozen=True, eq=False)
class Slice:
    """The runs of one map. These runs differ only in x, y and the seed."""

    label: str
    """The values that distinguish this slice from other slices, or an empty text for a single slice."""
    cells: tuple[Cell, ...]
    """The runs in the order of the sweep."""


def value_label(value: object) -> str:
    """Return the label of a value on an axis, with at most 30 characters."""
    return short(plain(value), LONGEST_LABEL)


def name_of_cell(cell: Cell, fields: Iterable[str]) -> str:
    """Return the name of a run, for example `gamma 0.3, seed 0`."""
    return ", ".join(f"{name} {value_label(cell.fields.get(name))}" for name in fields)


def runs_to_draw(
    result: SweepResult, rule: str, x: str | None, y: str | None
) -> tuple[tuple[Cell, ...], str, str | None]:
    """Return the runs of a sweep, each once, and the fields of the axes, as `choose_axes` chooses them.

    Args:
        result: a result of `sweep` or `open_sweep`.
        rule: the rule about the number of runs in the error.
        x: the requested horizontal field.
        y: the requested vertical field.

    Raises:
        ValueError: If the sweep is empty, or a field is unknown, is given twice, or is the seed.
    """
    cells = tuple({cell.id: cell for cell in result}.values())
    if not cells:
        raise ValueError(f"{rule}, got none in {safe_text(result.out)}. Give another sweep")
    return cells, *choose_axes(cells, x, y)


def choose_axes(cells: Sequence[Cell], x: str | None = None, y: str | None = None) -> tuple[str, str | None]:
    """Choose the fields of the axes.

    Args:
        cells: the runs of a sweep.
        x: the requested horizontal field, or a name in `grids.ALIASES`. With None, the function chooses the
            field.
        y: the requested vertical field. With None, the function chooses the field.

    Returns:
        The fields x and y. If only one field varies, y is None, and the map has one row. The function prefers
        varying fields in this order: gamma, weight decay, layers, learning rate, training sequences, any
        numeric field.

    Raises:
        ValueError: If a field is unknown, is given twice, or is the seed.
    """
    asked = {direction: _field(direction, name) for direction, name in (("x", x), ("y", y)) if name}
    if len(set(asked.values())) < len(asked):
        raise ValueError(f"x and y must be two different fields, got {asked['x']!r} for both. Try x='gamma'.")
    varying = axes_of(cells)
    numbers = [name for name, values in varying.items() if name != "seed" and all(map(_is_number, values))]
    unasked = [name for name in dict.fromkeys((*FIRST, *numbers)) if name not in asked.values()]
    free = [name for name in unasked if name in varying]
    across = asked.get("x") or (free or unasked)[0]
    free = [name for name in free if name != across and not goes_with(cells, across, name)]
    return across, asked.get("y") or next(iter(free), None)


def axis(cells: Sequence[Cell], name: str, varying: Mapping[str, tuple[Any, ...]]) -> Axis:
    """Return a field's axis, with a title that lists the fields that vary together with the field.

    Args:
        cells: one or more runs of a sweep.
        name: the name of the field.
        varying: the result of `axes_of(cells)`.
    """
    values = varying.get(name) or (cells[0].fields.get(name),)
    others = [other for other in varying if other not in (name, "seed") and goes_with(cells, name, other)]
    title = TITLES.get(name, name)
    return Axis(name, values, f"{title}; with it {', '.join(others)}" if others else title)


def goes_with(cells: Sequence[Cell], name: str, other: str) -> bool:
    """Check whether each value of a field occurs with exactly one value of another field, and vice versa."""
    pairs = {(value_key(cell.fields.get(name)), value_key(cell.fields.get(other))) for cell in cells}
    return len(pairs) > 1 and all(len({pair[i] for pair in pairs}) == len(pairs) for i in (0, 1))


def also_varying(cells: Sequence[Cell], varying: Iterable[str], x: str, y: str | None) -> list[str]:
    """Return the varying fields except x, y, the seed and fields that vary together with x or y."""
    on_axes = [name for name in (x, y) if name is not None]
    others = [name for name in varying if name not in (*on_axes, "seed")]
    return [name for name in others if not any(goes_with(cells, shown, name) for shown in on_axes)]


def slices(cells: Sequence[Cell], x: str, y: str | None) -> tuple[Slice, ...]:
    """Group the runs by the varying fields that the axes do not show, with one map for each group.

    Args:
        cells: the runs of a sweep.
        x: the horizontal field.
        y: the vertical field, or None for a map of one row.

    Returns:
        The slices, one for each combination of values. Larger slices are first, and slices of equal size are
        in ascending order of their values.
    """
    varying = axes_of(cells)
    axes: list[Axis] = []
    for name in also_varying(cells, varying, x, y):
        if not any(goes_with(cells, earlier.name, name) for earlier in axes):
            axes.append(axis(cells, name, varying))
    groups: dict[tuple[int, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(a.position(cell.fields.get(a.name)) for a in axes), []).append(cell)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        Slice(", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(axes, place, strict=True)), tuple(group))
        for place, group in ordered
    )


def _field(direction: str, name: str) -> str:
    """Return a field by its name or its short name."""
    field = ALIASES.get(name, name)
    sorted_by_part({field: None})
    if field == "seed":
        raise ValueError(f"{direction} must be a field other than the seed, got {name!r}. Try 'gamma'.")
    return field


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
