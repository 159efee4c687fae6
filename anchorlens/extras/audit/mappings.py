"""The mappings of a dataset: its distinct inputs, and their presentation as sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from anchorlens.configuration import check_number, frozen_dataclass
from anchorlens.tasks import AnchorBatch, AnchorTask, Pair, Trials, distinct_rows

MOST_CELLS = 5_000_000
"""The largest number of trained (chain, key, position) of an audited task, so that they fit in memory."""


@frozen_dataclass(eq=False)
class Mappings:
    """The mappings of a dataset, where each mapping assigns a target to a chain of anchors and a key.

    A mapping is valid for every position of the key and for all noise tokens.

    `mappings_of` makes mappings from an AnchorTask, and `read_csv` reads mappings from a file.
    """

    name: str
    """The name of the dataset: a file's name, or `task`."""
    chains: Int[np.ndarray, "mapping k"]
    """The anchors in order, as the dataset numbers them."""
    keys: Int[np.ndarray, " mapping"]
    """The keys, as the dataset numbers them."""
    targets: Int[np.ndarray, " mapping"]
    """The trained targets, as the dataset numbers them."""
    violates: Bool[np.ndarray, " mapping"] | None
    """Whether each mapping violates the composition rule: the truth, used for scoring only. `None` if
    unknown."""
    task: AnchorTask
    """The task that presents the mappings as sequences, whose tokens may differ from the dataset's
    numbers."""
    trials: Trials
    """Every trained (chain, key, position) in the tokens of `task`, sorted by mapping."""
    first_trial: Int[np.ndarray, " mapping"]
    """The index of the first trial of each mapping in `trials`."""
    file: Path | None = None
    """The file from which the mappings were read."""
    planted: Int[np.ndarray, " mapping"] | None = None
    """The token that is trained instead of each mapping's target, -1 for the target itself. `None` if no
    target is replaced."""

    disagreeing: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """For each mapping whose rows have different targets: the line and the target of every row."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def groups(self) -> tuple[Pair, ...]:
        """The chains (pairs) in the dataset, ascending."""
        return tuple(map(tuple, self.chains[self._grouping[0]].tolist()))

    @property
    def group_of(self) -> Int[np.ndarray, " mapping"]:
        """The index of each mapping's group in `groups`."""
        return self._grouping[1]

    @cached_property
    def rows_of(self) -> list[Int[np.ndarray, " row"]]:
        """The indices of the mappings of each group, ascending."""
        order = np.argsort(self.group_of, kind="stable")
        ends = np.searchsorted(self.group_of[order], np.arange(1, len(self.groups)))
        return np.split(order, ends)

    @cached_property
    def group_violates(self) -> Bool[np.ndarray, " group"] | None:
        """Whether most mappings of each group violate the rule, or `None` if the violations are unknown."""
        if self.violates is None:
            return None
        return np.array([self.violates[rows].mean() > 0.5 for rows in self.rows_of])

    @cached_property
    def mirror(self) -> Int[np.ndarray, " mapping"]:
        """The index of the mapping with the same key and the anchors in reverse order, or -1 if not found.

        A mapping whose chain is the same in both orders also has the index -1.
        """
        both = (np.column_stack([chains, self.keys]) for chains in (self.chains, self.chains[:, ::-1]))
        own, mirrored = np.split(distinct_rows(np.concatenate(list(both)))[1], 2)
        place = np.full(2 * len(self), -1)
        place[own] = np.arange(len(self))
        return np.where(own != mirrored, place[mirrored], -1)

    def training_set(self, n: int, rng: np.random.Generator) -> AnchorBatch:
        """Draw `n` sequences, uniformly over all trained combinations of chain, key and position."""
        return self._put(rng.integers(0, len(self.trials), n), rng)

    def questions(self, n_draws: int, rng: np.random.Generator) -> AnchorBatch:
        """Draw `n_draws` sequences of each mapping, with trained key positions and random noise tokens."""
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
        """The index of the first mapping of each group, groups ascending, and the group of each mapping."""
        return distinct_rows(self.chains)

    def __repr__(self) -> str:
        known = "truth unknown" if self.violates is None else f"{self.violates.sum():,} violate the rule"
        return f"Mappings({self.name}: {len(self):,} mappings in {len(self.groups)} groups; {known})"


def mappings_of(task: AnchorTask, name: str = "task") -> Mappings:
    """Return the trained mappings of a task, including overrides and exceptions.

    Args:
        task: the task. The mappings combine each trained pair with every key that has a trained position. A
            mapping violates the rule if an override or an exception sets a target other than the composition
            f(x; a1, ...). The overrides can come from the task or from its regime.
        name: the name of the dataset.

    Raises:
        ValueError: If the task has more than 5,000,000 trained combinations of chain, key and position.

    >>> mappings_of(AnchorTask(complexity=1))
    Mappings(task: 1,280 mappings in 16 groups; 160 violate the rule)
    """
    if (n_trials := task.n_trials("train")) > MOST_CELLS:
        raise ValueError(
            f"the task must train at most {MOST_CELLS:,} combinations of chain, key and position, got "
            f"{n_trials:,}. Narrow the key range or shorten the sequence"
        )
    trials = task.trials("train")
    first, _ = distinct_rows(np.column_stack([trials.pairs, trials.keys]))  # pair-major, key by key
    mappings = trials.take(first)
    trained = task.targets(mappings)
    violates = trained != task.targets(mappings, kind="inferential")
    return Mappings(name, mappings.pairs, mappings.keys, trained, violates, task, trials, first)


SHARE = 0.05
"""The fraction of the mappings that get a wrong target, to measure whether an audit finds them."""
LEAST, MOST = 20, 200
"""The smallest number of mappings that get a wrong target in a large enough dataset, and the largest."""
MOST_SHARE = 0.2
"""The largest fraction of a small dataset's mappings that get a wrong target."""


def corrupted(task: AnchorTask, share: float, *, seed: int = 0) -> AnchorTask:
    """Return the task with a fraction of its mappings trained on wrong targets.

    Args:
        task: any task. The result keeps the overrides of the task.
        share: the fraction, 0..1, of the rule-obeying mappings that get a wrong target. The mappings that get
            a wrong target are drawn at random.
        seed: the seed of the choice of mappings and of their wrong targets.

    Returns:
        A task whose overrides give each drawn mapping a wrong target. The wrong target is uniform over all
        number tokens except the correct target.

    Raises:
        ValueError: If `share` is outside 0..1, or the task has only one number token.

    >>> from anchorlens.extras.audit import mappings_of
    >>> mappings_of(corrupted(AnchorTask(), 0.05))
    Mappings(task: 1,120 mappings in 14 groups; 56 violate the rule)
    """
    check_number("share", share, minimum=0, maximum=1)
    if len(task.keys) < 2:
        raise ValueError("task must have at least two number tokens, got one token. Widen key_min..key_max")
    mappings, rng = mappings_of(task), np.random.default_rng(seed)
    assert mappings.violates is not None
    obeying = np.flatnonzero(~mappings.violates)
    ruled = replace(task, n_exceptions=0)  # the result adds its own exceptions again
    overrides: dict[Pair, Any] = dict(task.overrides or {})
    for row in np.sort(rng.choice(obeying, round(share * len(obeying)), replace=False)).tolist():
        pair, key = tuple(mappings.chains[row].tolist()), int(mappings.keys[row])
        table = overrides.get(pair)
        if type(table) is not dict:  # a dict is a table of ours; the task's own tables are immutable
            everywhere = task.product([pair], task.keys, np.zeros_like(task.keys))
            table = dict(zip(task.keys.tolist(), ruled.targets(everywhere).tolist(), strict=True))
            overrides[pair] = table
        table[key] = _another(rng, task.keys, int(mappings.targets[row]))
    return replace(task, overrides=overrides)


def planted(mappings: Mappings, seed: int) -> Mappings | None:
    """Plant wrong targets in a fraction `SHARE` of the mappings, or in a larger fraction of a small dataset.

    Args:
        mappings: the mappings of a dataset.
        seed: the seed of the choice of mappings and of their wrong targets. A wrong target is the target of
            another mapping.

    Returns:
        The mappings with the wrong targets in the field `planted`. The result is `None` if there are fewer
        than three mappings or only one target.

    >>> few = planted(mappings_of(AnchorTask()), seed=0)
    >>> int((few.planted >= 0).sum())
    56
    """
    n, rng = len(mappings), np.random.default_rng(seed)
    targets = mappings.task.targets(mappings.trials.take(mappings.first_trial))
    n_wrong = min(max(round(SHARE * n), LEAST), round(MOST_SHARE * n), MOST)
    if n_wrong == 0 or (targets == targets[0]).all():
        return None
    wrong = np.full(n, -1)
    for row in rng.choice(n, n_wrong, replace=False).tolist():
        wrong[row] = _another(rng, targets, int(targets[row]))
    return replace(mappings, planted=wrong)


def _another(rng: np.random.Generator, values: Int[np.ndarray, " value"], value: int) -> int:
    """Draw a value other than the given one, uniformly."""
    others = values[values != value]
    return int(others[rng.integers(len(others))])
