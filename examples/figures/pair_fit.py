"""When a run fits each anchor pair of its training data, along its trajectory of checkpoints.

A pair that the last checkpoint has not fit is censored: its step is unknown and larger than the run's last.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from anchorlens.files.checkpoint import load_checkpoint, training_set
from anchorlens.sweep import Cell
from anchorlens.tasks.two_anchor.anchor_functions import Pair

FIT = 0.9
"""Accuracy on its training sequences from which a pair counts as fit, as for the phases."""
MOST_SEQUENCES = 200
"""Training sequences of each pair that are asked at most."""


@dataclass(frozen=True, eq=False)
class Course:
    """How a run came to answer each trained pair."""

    cell: Cell
    """The run."""
    steps: Int[np.ndarray, " checkpoint"]
    """Of the trajectory, ascending, from 0."""
    pairs: tuple[Pair, ...]
    """Every trained pair."""
    accuracy: Float[np.ndarray, "checkpoint pair"]
    """On training sequences of the pair, 0..1."""

    @property
    def broken(self) -> frozenset[Pair]:
        """The mirrored groups whose target is no composition, each by its pair in ascending order."""
        return frozenset(_group(pair) for pair in self.cell.run.task.trained_overrides)

    def groups(self) -> dict[Pair, list[int]]:
        """Every group of two mirrored pairs of different anchors -> their columns."""
        found: dict[Pair, list[int]] = {}
        for column, pair in enumerate(self.pairs):
            if len(set(pair)) > 1:
                found.setdefault(_group(pair), []).append(column)
        return found

    def fit_steps(self) -> dict[Pair, float | None]:
        """The step at which both pairs of a group are fit; None where they are not (censored)."""
        return {
            group: fit_step(self.steps.tolist(), self.accuracy[:, columns].min(axis=1).tolist())
            for group, columns in self.groups().items()
        }


def _group(pair: Pair) -> Pair:
    return min(pair, pair[::-1])


def course(cell: Cell, n_sequences: int = MOST_SEQUENCES) -> Course:
    """Measure a run's trajectory; its configuration asks for one (`n_checkpoints`).

    Args:
        cell: it is done.
        n_sequences: of each pair, the first that it was trained on.
    """
    assert cell.path is not None
    task = cell.run.task
    batch = training_set(task, cell.run.train)
    index = task.pair_index(batch.trials.pairs)
    chosen = [np.flatnonzero(index == task.pairs.index(pair))[:n_sequences] for pair in task.seen_pairs]
    asked = np.concatenate(chosen)
    tokens, targets = batch.tokens[asked], batch.targets[asked]
    ends = np.cumsum([len(rows) for rows in chosen])[:-1]
    steps, accuracy = [], []
    for path in sorted((cell.path / "checkpoints").glob("step_*.pt")):
        checkpoint = load_checkpoint(path)
        model = checkpoint.last_position_model()
        with torch.inference_mode():
            answers = torch.cat([model(chunk)[:, -1].argmax(dim=-1) for chunk in tokens.split(1024)])
        right = (answers == targets).numpy()
        steps.append(checkpoint.step)
        accuracy.append([part.mean() for part in np.split(right, ends)])
    return Course(cell, np.array(steps), task.seen_pairs, np.array(accuracy))


def fit_step(steps: Sequence[int], accuracy: Sequence[float], threshold: float = FIT) -> float | None:
    """The step from which an accuracy stays at or above the threshold, linear between two checkpoints.

    None where the last checkpoint is below.

    >>> fit_step([0, 10, 20, 30], [0.0, 0.95, 0.8, 1.0])  # half way from .8 to 1
    25.0
    >>> fit_step([0, 10, 20], [0.0, 1.0, 0.8]) is None
    True
    """
    below = [k for k, value in enumerate(accuracy) if value < threshold]
    if not below:
        return float(steps[0])
    before, after = below[-1], below[-1] + 1
    if after == len(steps):
        return None
    share = (threshold - accuracy[before]) / (accuracy[after] - accuracy[before])
    return round(steps[before] + share * (steps[after] - steps[before]), 6)


def compared(steps: Mapping[Pair, float | None], one: Pair, last: int) -> dict[str, Any]:
    """The step at which one group is fit, against the others.

    Args:
        steps: of every group; None is censored.
        one: the group that is compared.
        last: step of the run's end.

    Returns:
        `step` (None: censored, larger than `last`); `others` (their steps); `median_of_others`, a censored
        one counting as longer than all (None where that leaves it unknown); `n_others_before`: others that
        are known to be fit earlier, `of` how many; `ratio`: the step over that median,
        `ratio_is_lower_bound` where the step is censored and `last` stands for it.

    >>> compared({(1, 2): None, (1, 3): 10, (1, 4): 30, (2, 3): 20}, (1, 2), last=100)["ratio"]
    5.0
    """
    others = [step for group, step in steps.items() if group != one]
    own = steps[one]
    middle = statistics.median(math.inf if step is None else step for step in others)
    known = math.isfinite(middle) and middle > 0
    return {
        "step": own,
        "others": others,
        "median_of_others": middle if math.isfinite(middle) else None,
        "n_others_before": sum(step is not None and (own is None or step < own) for step in others),
        "of": len(others),
        "ratio": (last if own is None else own) / middle if known else None,
        "ratio_is_lower_bound": own is None,
    }
