"""The mappings of a dataset: its distinct questions, and how they are presented as sequences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import documented
from anchorlens.tasks.shared.distinct_rows import distinct_rows
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair, Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Bool, Int

MOST_CELLS = 5_000_000
"""Largest number of trained (chain, key, position) of an audited task, so that they fit in memory."""


@documented
@dataclass(frozen=True, eq=False)
class Mappings:
    """The mappings of a dataset, (chain of anchors, key) -> target, whatever the position and the noise.

    `mappings_of` makes them from an AnchorTask, `read_csv` from a file.
    """

    name: str
    """Name of the dataset: a file's name, or `task`."""
    chains: Int[np.ndarray, "mapping k"]
    """Anchors in order, in the dataset's numbers."""
    keys: Int[np.ndarray, " mapping"]
    """Keys, in the dataset's numbers."""
    targets: Int[np.ndarray, " mapping"]
    """Trained targets, in the dataset's numbers."""
    violates: Bool[np.ndarray, " mapping"] | None
    """Whether a mapping violates the composition rule: the truth, used for scoring only; None where
    unknown."""
    task: AnchorTask
    """The task that presents the mappings as sequences; its tokens may differ from the dataset's numbers."""
    trials: Trials
    """Every trained (chain, key, position) in the tokens of `task`, sorted by mapping."""
    first_trial: Int[np.ndarray, " mapping"]
    """Index of the first trial of each mapping in `trials`."""
    file: Path | None = None
    """The file from which they were read."""
    planted: Int[np.ndarray, " mapping"] | None = None
    """Token that is trained in place of a mapping's target, -1 for the target itself; None: no mapping has
    one."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def groups(self) -> tuple[Pair, ...]:
        """The chains (pairs) that occur, ascending."""
        return tuple(map(tuple, self.chains[self._grouping[0]].tolist()))

    @property
    def group_of(self) -> Int[np.ndarray, " mapping"]:
        """Index of each mapping's group in `groups`."""
        return self._grouping[1]

    @cached_property
    def rows_of(self) -> list[Int[np.ndarray, " row"]]:
        """Indices of the mappings of each group, ascending."""
        order = np.argsort(self.group_of, kind="stable")
        ends = np.searchsorted(self.group_of[order], np.arange(1, len(self.groups)))
        return np.split(order, ends)

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
        """Index of the mapping with the same key and the anchors in reverse order; -1 where there is none.

        A chain that reads the same in both orders has none.
        """
        both = (np.column_stack([chains, self.keys]) for chains in (self.chains, self.chains[:, ::-1]))
        own, mirrored = np.split(distinct_rows(np.concatenate(list(both)))[1], 2)
        place = np.full(2 * len(self), -1)
        place[own] = np.arange(len(self))
        return np.where(own != mirrored, place[mirrored], -1)

    def training_set(self, n: int, rng: np.random.Generator) -> AnchorBatch:
        """Draw `n` sequences: (chain, key, position) uniform over the trained ones, with noise elsewhere."""
        return self._put(rng.integers(0, len(self.trials), n), rng)

    def questions(self, n_draws: int, rng: np.random.Generator) -> AnchorBatch:
        """Every mapping `n_draws` times at a trained position with fresh noise: [draw * mapping] rows."""
        ends = np.append(self.first_trial[1:], len(self.trials))
        return self._put(rng.integers(self.first_trial, ends, (n_draws, len(self))).ravel(), rng)

    def _put(self, rows: Int[np.ndarray, " batch"], rng: np.random.Generator) -> AnchorBatch:
        import torch

        batch = self.task.place(self.trials.take(rows), self.task.noise(len(rows), rng))
        if self.planted is not None:
            told = torch.from_numpy(self.planted[np.searchsorted(self.first_trial, rows, side="right") - 1])
            batch = replace(batch, targets=torch.where(told >= 0, told, batch.targets))
        return batch

    @cached_property
    def _grouping(self) -> tuple[np.ndarray, np.ndarray]:
        """Index of the first mapping of each group, groups ascending, and the group of each mapping."""
        return distinct_rows(self.chains)

    def __repr__(self) -> str:
        known = "truth unknown" if self.violates is None else f"{self.violates.sum():,} violate the rule"
        return f"Mappings({self.name}: {len(self):,} mappings in {len(self.groups)} groups; {known})"


def mappings_of(task: AnchorTask, name: str = "task") -> Mappings:
    """The mappings that a task trains; those changed by an override or exception violate its rule.

    Args:
        task: its seen pairs with every key that has a trained position. Where an override (the task's own, or
            the regime's) or an exception trains another target than the composition f(x; a1, ..), that
            mapping violates.
        name: name of the dataset.

    Raises:
        ValueError: more than 5,000,000 trained (chain, key, position).

    >>> mappings_of(AnchorTask(complexity=1))
    Mappings(task: 1,280 mappings in 16 groups; 160 violate the rule)
    """
    if (n_trials := task.n_trials("train")) > MOST_CELLS:
        raise ValueError(
            f"the task trains {n_trials:,} (chain, key, position), more than an audit's {MOST_CELLS:,}; "
            "narrow its key range or its sequence"
        )
    trials = task.trials("train")
    first, _ = distinct_rows(np.column_stack([trials.pairs, trials.keys]))  # pair-major, key by key
    mappings = trials.take(first)
    trained = task.targets(mappings)
    return Mappings(
        name=name,
        chains=mappings.pairs,
        keys=mappings.keys,
        targets=trained,
        violates=trained != task.targets(mappings, kind="inferential"),
        task=task,
        trials=trials,
        first_trial=first,
    )
