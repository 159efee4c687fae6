"""The grid that figures of 2501.08537 share, gamma x weight decay x seeds: rows, labels, typical cells.

What is counted over its cells is counted seed by seed: those of one seed begin with the same weights, and at
weight decay 0, .01 and .1 they end almost alike, so that they are no runs of their own.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from anchorlens.extras.sweep import Cell, grid
from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.probes import Comparison, compare
from anchorlens.recipes.run_config import RunConfig
from anchorlens.tasks.shared.phases import LABELS
from shared.common import runs, trained
from shared.ordering import order, share_above_by_seed, together

MAIN_GRID: Mapping[str, Any] = {"gamma": "0.3:0.8:0.05", "weight_decay": (0, 0.01, 0.1, 1)}
SEEDS = (0, 1, 2)

STAND_INS: Mapping[str, str] = {"Phase 1": "phase1", "Phase 2 with commutativity": "phase2-commutative"}
"""Label -> the preset whose cells stand in, at `quick` scale, where no cell of the grid has the label."""

SHORT_NAMES: Mapping[str, str] = dict(
    zip(LABELS, ("Phase 1", "Phase 2 without", "Phase 2 with", "Phase 3"), strict=True)
)
"""Label -> what a picture has room for."""

Values = Sequence[Mapping[str, float | None]]
"""The numbers of each cell of a group."""


@dataclass(frozen=True)
class Group:
    """The cells that have one label by behaviour."""

    label: str
    """One of `LABELS`."""
    source: str
    """`grid`, or the preset that stands in for it."""
    cells: tuple[Cell, ...]
    """At least one."""
    where: str = ""
    """Which of the cells of that label, where it is not all of them."""

    @property
    def key(self) -> str:
        """In the numbers: the label, and which of its cells."""
        return self.label + self.where

    @property
    def name(self) -> str:
        """For pictures: the same in short, and the preset that stands in, if one does."""
        short = self.label.removesuffix(" commutativity") + self.where
        return short + ("" if self.source == "grid" else f" (preset {self.source})")

    def at_largest_gamma(self) -> Group:
        """Those of its cells that have the largest gamma of any."""
        gamma = max(cell.fields["gamma"] for cell in self.cells)
        cells = tuple(cell for cell in self.cells if cell.fields["gamma"] == gamma)
        return replace(self, cells=cells, where=f" at gamma {gamma:g}")


def main_runs(given: argparse.Namespace) -> list[RunConfig]:
    """Every cell of the grid, over the seeds that were asked for."""
    return runs(given, MAIN_GRID)


def rows(cells: Sequence[Cell], along: str = "gamma") -> dict[tuple[Any, ...], list[Cell]]:
    """Cells that differ along one axis alone, ascending, by (seed, value of the other axis).

    Args:
        cells: of the grid.
        along: `gamma` or `weight_decay`.
    """
    other = "weight_decay" if along == "gamma" else "gamma"
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.fields[along]):
        found.setdefault((cell.fields["seed"], cell.fields[other]), []).append(cell)
    return dict(sorted(found.items()))


def labelled(given: argparse.Namespace, cells: Sequence[Cell], *, alike: bool = False) -> list[Group]:
    """The cells of each label, in the order of the phases; a label that nothing has is left out.

    Where the grid has no cell of a label, at `quick` scale, those of a preset that end in it stand in; they
    are trained where they are missing.

    Args:
        given: the options of the script.
        cells: of the grid.
        alike: whether a stand-in must have the grid's model but for gamma, so that weights compare.

    Raises:
        SystemExit: no cell has a phase.
    """
    found = []
    for label in LABELS:
        own, source = [cell for cell in cells if cell.numbers["label"] == label], "grid"
        if not own and label in STAND_INS and given.preset == "quick":
            source = STAND_INS[label]
            wanted = grid(source, {"seed": given.seed}, n_checkpoints=0)
            model = wanted[0].model_config
            if (
                not alike
                or replace(model, gamma=cells[0].run.model_config.gamma) == cells[0].run.model_config
            ):
                own = [cell for cell in trained(given, wanted) if cell.numbers["label"] == label]
        if own:
            found.append(Group(label, source, tuple(own)))
    if not found:
        raise SystemExit(f"no cell of {len(cells)} has a phase; train longer")
    return found


def by_label(groups: Sequence[Group], values: Sequence[Values]) -> dict[str, dict[str, Any]]:
    """JSON-ready: for each group where its cells come from, the median of each number, and every cell's.

    Medians and numbers of cells are those of all cells and, `by_seed`, of those of each seed.
    """
    content = {}
    for group, own in zip(groups, values, strict=True):
        known = {name: known_by_seed(group, own, name) for name in own[0]}
        places = cell_numbers(group.cells)
        seeds = [cell.fields["seed"] for cell in group.cells]
        content[group.key] = {
            "source": group.source,
            "n_cells": len(group.cells),
            "n_cells_by_seed": {seed: seeds.count(seed) for seed in sorted(set(seeds))},
            "median": {name: _median([*chain(*found.values())]) for name, found in known.items()},
            "median_by_seed": {
                name: {seed: _median(values) for seed, values in found.items()}
                for name, found in known.items()
            },
            "cells": [{**cell, **each} for cell, each in zip(places, own, strict=True)],
        }
    return content


def known_by_seed(group: Group, values: Values, name: str) -> dict[int, list[float]]:
    """Seed -> a number of the group's cells, where it is known."""
    found: dict[int, list[float]] = {cell.fields["seed"]: [] for cell in group.cells}
    for cell, each in zip(group.cells, values, strict=True):
        if (value := each[name]) is not None:
            found[cell.fields["seed"]].append(value)
    return dict(sorted(found.items()))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def typical(values: Sequence[float | None]) -> int:
    """Which of a group's cells a picture shows: the one whose number is the median, the lower of two.

    Of equal numbers it is the first; None is unknown and never chosen, unless all are.

    >>> typical([0.9, None, 0.2, 0.3, 0.4]), typical([None, None])
    (3, 0)
    """
    known = [value for value in values if value is not None]
    return values.index(statistics.median_low(known)) if known else 0


def compare_typical(
    groups: Sequence[Group], probe: str, reading: str, values: Sequence[Values]
) -> tuple[Comparison, dict[str, Any]]:
    """A probe of the typical cell of each group, side by side.

    Args:
        groups: of `labelled`, at least one.
        probe: its name.
        reading: the number by which the typical cell is chosen.
        values: the numbers of every cell of every group.

    Returns:
        The comparison, and, JSON-ready, the rule and the cells that it chose.
    """
    chosen = [
        group.cells[typical([each[reading] for each in own])]
        for group, own in zip(groups, values, strict=True)
    ]
    names = [f"{group.name}: {_place(cell)}" for group, cell in zip(groups, chosen, strict=True)]
    checkpoints = [load_checkpoint(final(cell)) for cell in chosen]
    rule = f"of each group, the cell whose {probe}.{reading} is the median of the group's (the lower of two)"
    shown = dict(zip((group.key for group in groups), cell_numbers(chosen), strict=True))
    return compare(checkpoints, probe, labels=names), {"rule": rule, "shown": shown}


def final(cell: Cell) -> Path:
    """The last checkpoint of a cell that is done."""
    assert cell.path is not None
    return cell.path / "ckpt.pt"


def _place(cell: Cell) -> str:
    fields = cell.fields
    return f"gamma {fields['gamma']:g}, decay {fields['weight_decay']:g}, seed {fields['seed']}"


def summary(cells: Sequence[Cell], groups: Sequence[Group], number: str) -> dict[str, Any]:
    """How a number of the weights goes along gamma and weight decay, and what it is in each phase.

    Args:
        cells: of the grid.
        groups: of `labelled`.
        number: of `Cell.numbers`.

    Returns:
        `along_gamma` and `along_weight_decay`, of the cells that have a phase: by seed, over the pairs that
        differ in this alone, how many rise, fall and are equal, and the share that rises of those that
        differ, .5 by chance; of these, `ends` counts the smallest and the largest value alone;
        `phase_3_larger`: by seed, the share
        of the pairs (cell of Phase 3, cell of another phase) in which that of Phase 3 has the larger
        number; `by_label`.
    """
    values = [[{number: cell.numbers.get(number)} for cell in group.cells] for group in groups]
    known: dict[bool, dict[int, list[float]]] = {True: {}, False: {}}
    for group, own in zip(groups, values, strict=True):
        for seed, found in known_by_seed(group, own, number).items():
            known[group.label == "Phase 3"].setdefault(seed, []).extend(found)
    return {
        **along_both(cells, number),
        "phase_3_larger": share_above_by_seed(known[True], known[False]),
        "by_label": by_label(groups, values),
    }


def has_phase(cell: Cell) -> bool:
    """Whether a cell has a phase, so that it has fit its data: anything else is undecided."""
    return cell.numbers["label"].startswith("Phase")


def along_both(cells: Sequence[Cell], number: str) -> dict[str, Any]:
    """`along` either axis, of the cells that have a phase."""
    return {
        f"along_{axis}": along(
            cells, axis, lambda cell: cell.numbers.get(number) if has_phase(cell) else None
        )
        for axis in ("gamma", "weight_decay")
    }


def along(
    cells: Sequence[Cell], axis: str, number: Callable[[Cell], float | None]
) -> dict[int, dict[str, Any]]:
    """By seed, how a number changes over the pairs of cells that differ along one axis alone.

    Args:
        cells: of the grid.
        axis: `gamma` or `weight_decay`.
        number: of a cell; None is unknown.

    Returns:
        Seed -> `Order.described`, and the counts of the smallest and the largest value alone as `ends`.
    """
    lines: dict[int, list[list[float | None]]] = {}
    for (seed, _), row in rows(cells, axis).items():
        lines.setdefault(seed, []).append([number(cell) for cell in row])
    return {
        seed: {
            **together(map(order, own)).described(),
            "ends": together(order(_ends(line)) for line in own)._asdict(),
        }
        for seed, own in lines.items()
    }


def _ends(line: Sequence[float | None]) -> list[float]:
    """The first and the last number that are known."""
    known = [value for value in line if value is not None]
    return known[:1] + known[1:][-1:]


def cell_numbers(cells: Sequence[Cell], *names: str) -> list[dict[str, Any]]:
    """Where each cell lies, what it became, and some of its numbers."""
    places = ("gamma", "weight_decay", "seed")
    return [
        {
            "cell": cell.id,
            **{name: cell.fields[name] for name in places},
            "status": cell.status,
            "label": cell.numbers["label"],
            **{name: cell.numbers.get(name) for name in names},
        }
        for cell in cells
    ]
