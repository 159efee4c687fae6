"""The mappings of a dataset: its distinct questions, and how they are put as sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.anchor_functions import Pair
from anchorlens.configuration import documented
from anchorlens.sequences import AnchorBatch, Cells
from anchorlens.task import AnchorTask

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


@documented
@dataclass(frozen=True, eq=False)
class Mappings:
    """The mappings of a dataset, (chain of anchors, key) -> target, whatever the position and the noise.

    `mappings_of` makes them of an AnchorTask, `read_csv` of a file.
    """

    name: str
    """What the dataset is called: a file's name, or `task`."""
    chains: Int[np.ndarray, "mapping k"]
    """Anchors in order, as the dataset has them."""
    keys: Int[np.ndarray, " mapping"]
    """Keys, as the dataset has them."""
    targets: Int[np.ndarray, " mapping"]
    """Targets that are trained, as the dataset has them."""
    violates: Bool[np.ndarray, " mapping"] | None
    """Whether a mapping violates the composition rule: the truth, for scoring alone; None where unknown."""
    task: AnchorTask
    """How the mappings are put as sequences; its tokens may be other numbers than the dataset's."""
    cells: Cells
    """Every trained (chain, key, position) in the tokens of `task`, mapping by mapping."""
    first_cell: Int[np.ndarray, " mapping"]
    """Where the cells of each mapping begin in `cells`."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def groups(self) -> tuple[Pair, ...]:
        """The chains (pairs) that occur, ascending."""
        return tuple(map(tuple, self._grouping[0].tolist()))

    @property
    def group_of(self) -> Int[np.ndarray, " mapping"]:
        """Which of `groups` each mapping is in."""
        return self._grouping[1]

    @cached_property
    def group_violates(self) -> Bool[np.ndarray, " group"] | None:
        """Whether more than half of a group's mappings violate the rule; None where that is unknown."""
        if self.violates is None:
            return None
        n_groups = len(self.groups)
        wrong = np.bincount(self.group_of, weights=self.violates, minlength=n_groups)
        return wrong / np.bincount(self.group_of, minlength=n_groups) > 0.5

    @cached_property
    def mirror(self) -> Int[np.ndarray, " mapping"]:
        """Where the mapping of the same key and the anchors in reverse order stands; -1 where there is none.

        A chain that reads the same in both orders has none.
        """
        questions = list(zip(map(tuple, self.chains.tolist()), self.keys.tolist(), strict=True))
        rows = {question: row for row, question in enumerate(questions)}
        found = [-1 if chain == chain[::-1] else rows.get((chain[::-1], key), -1) for chain, key in questions]
        return np.array(found)

    def training_set(self, n: int, rng: np.random.Generator) -> AnchorBatch:
        """Draw `n` sequences: trained (chain, key, position) uniform, with noise around it."""
        return self._put(rng.integers(0, len(self.cells), n), rng)

    def questions(self, n_draws: int, rng: np.random.Generator) -> AnchorBatch:
        """Every mapping `n_draws` times at a trained position with fresh noise: [draw * mapping] rows."""
        ends = np.append(self.first_cell[1:], len(self.cells))
        return self._put(rng.integers(self.first_cell, ends, (n_draws, len(self))).ravel(), rng)

    def _put(self, rows: Int[np.ndarray, " batch"], rng: np.random.Generator) -> AnchorBatch:
        cells = Cells(self.cells.pairs[rows], self.cells.keys[rows], self.cells.positions[rows])
        return self.task.sequences(cells, rng)

    @cached_property
    def _grouping(self) -> tuple[np.ndarray, np.ndarray]:
        groups, group_of = np.unique(self.chains, axis=0, return_inverse=True)
        return groups, group_of.reshape(-1)

    def __repr__(self) -> str:
        known = "truth unknown" if self.violates is None else f"{self.violates.sum():,} violate the rule"
        return f"Mappings({self.name}: {len(self):,} mappings in {len(self.groups)} groups; {known})"


def mappings_of(task: AnchorTask, name: str = "task") -> Mappings:
    """The mappings that a task trains; those that an override changes violate its rule.

    Args:
        task: its seen pairs with every key that has a trained position. Where an override (the task's own, or
            the regime's) trains another target than the composition f(x; a1, ..), that mapping violates.
        name: what to call it.

    >>> mappings_of(AnchorTask(complexity=1))
    Mappings(task: 1,280 mappings in 16 groups; 160 violate the rule)
    """
    cells = task.cells("train")  # pair-major, key by key
    numbers = np.column_stack([task.pair_index(cells.pairs), cells.keys])
    _, first = np.unique(numbers, axis=0, return_index=True)
    one_each = Cells(cells.pairs[first], cells.keys[first], cells.positions[first])
    trained = task.targets(one_each)
    return Mappings(
        name=name,
        chains=one_each.pairs,
        keys=one_each.keys,
        targets=trained,
        violates=trained != task.targets(one_each, kind="inferential"),
        task=task,
        cells=cells,
        first_cell=first,
    )
