"""When a run fits each anchor pair of its training data, along its trajectory of checkpoints.

Figure 8B of arXiv 2501.08537 counts the epochs until a pair has 60 % accuracy on its own training data, for
each of the 16 pairs, and marks (1,1), (1,2), (2,1) and (2,2) as slow; the rule of (1,2) and (2,1) is broken.
A pair that a run has not fit is censored: its step is unknown and larger than the run's last, and no mean is
taken over it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from anchorlens.extras.sweep import Cell
from anchorlens.files.checkpoint import load_checkpoint, training_set
from anchorlens.tasks.two_anchor.sequences import Pair

BROKEN: tuple[Pair, ...] = ((1, 2), (2, 1))
"""The pairs whose rule complexity 1 breaks."""
MARKED: tuple[Pair, ...] = ((1, 1), *BROKEN, (2, 2))
"""The pairs that the paper marks as slow; (1, 1) and (2, 2) obey the rule."""
THRESHOLDS = (0.6, 0.9, 0.99)
"""Accuracies from which a pair counts as fit: the paper's, that of the phases, that of the paper's code."""
READINGS = ("first", "for good")
"""A pair is fit when it first reaches the threshold, or from where on it stays there to the end."""
MOST_SEQUENCES = 200
"""Training sequences of each pair that are asked at most."""
_SAME = 1e-9
"""Ratios this near to each other are equal, but for the order in which they were added up."""

Steps = Mapping[Pair, float | None]
"""Pair -> the step at which it is fit; None where it is not (censored)."""


@dataclass(frozen=True, eq=False)
class Course:
    """How a run came to answer each trained pair."""

    cell: str
    """Identity of the run in its sweep."""
    gamma: float
    """Initialization rate."""
    seed: int
    """Of the run."""
    broken: bool
    """Whether the rule of `BROKEN` is broken; False in the control."""
    steps: Int[np.ndarray, " checkpoint"]
    """Of the trajectory, ascending, from 0."""
    accuracy: Mapping[Pair, Float[np.ndarray, " checkpoint"]]
    """Every trained pair -> accuracy on its training sequences, 0..1."""

    def fit_steps(self, threshold: float, reading: str = "first") -> dict[Pair, float | None]:
        """The step at which each pair is fit; None where it is not (censored)."""
        return {
            pair: fit_step(self.steps.tolist(), values.tolist(), threshold, reading)
            for pair, values in self.accuracy.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` reads, with pairs as texts."""
        accuracy = {text(pair): values.round(3) for pair, values in self.accuracy.items()}
        return {**vars(self), "accuracy": accuracy}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Course:
        """A course from numbers that were stored: those of `to_dict`, or more."""
        values = {name: stored[name] for name in cls.__dataclass_fields__}
        values["steps"] = np.array(values["steps"])
        values["accuracy"] = {
            (int(name.split(",")[0]), int(name.split(",")[1])): np.array(accuracy)
            for name, accuracy in values["accuracy"].items()
        }
        return cls(**values)


def course(cell: Cell, n_sequences: int = MOST_SEQUENCES) -> Course:
    """Measure a run's trajectory; its configuration asks for one (`n_checkpoints`).

    Args:
        cell: it is done.
        n_sequences: of each pair, the first that it was trained on.
    """
    assert cell.path is not None
    task, train = cell.run.task, cell.run.train_config
    batch = training_set(task, train)
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
    by_pair = dict(zip(task.seen_pairs, np.array(accuracy).T, strict=True))
    broken = set(BROKEN) <= set(task.trained_overrides)
    return Course(cell.id, cell.run.model_config.gamma, train.seed, broken, np.array(steps), by_pair)


def fit_step(
    steps: Sequence[int], accuracy: Sequence[float], threshold: float, reading: str = "first"
) -> float | None:
    """The step at which an accuracy reaches a threshold, linear between two checkpoints.

    Args:
        steps: of the checkpoints, ascending.
        accuracy: at each of them.
        threshold: reached where the accuracy is at least that.
        reading: `first`, or `for good`: it is not below at any later checkpoint.

    Returns:
        None where it is not reached (censored).

    >>> fit_step([0, 10, 20, 30], [0.0, 1.0, 0.5, 0.75], threshold=0.6)
    6.0
    >>> fit_step([0, 10, 20, 30], [0.0, 1.0, 0.5, 0.75], threshold=0.6, reading="for good")
    24.0
    >>> fit_step([0, 10, 20], [0.0, 1.0, 0.5], threshold=0.6, reading="for good") is None
    True
    """
    reached = [value >= threshold for value in accuracy]
    if reading == "for good":
        reached = [*accumulate(reversed(reached), lambda after, now: after and now)][::-1]
    if not any(reached):
        return None
    after = reached.index(True)
    if after == 0:
        return float(steps[0])
    before = after - 1
    share = (threshold - accuracy[before]) / (accuracy[after] - accuracy[before])
    return round(steps[before] + share * (steps[after] - steps[before]), 6)


def against(values: Steps, ones: Collection[Pair]) -> dict[str, Any]:
    """The mean of some pairs over the mean of the others, and how rare that is among all choices of as many.

    Args:
        values: a number for each pair; None is censored.
        ones: the pairs that are compared with the others.

    Returns:
        `ratio`; `p`, the share of all choices of `len(ones)` pairs whose ratio is at least as large (an exact
        permutation test, one-sided; it takes pairs as independent, which mirrored ones are not); both None
        where a pair is censored; `n_censored`.

    >>> found = against({(1, 1): 3, (1, 2): 3, (2, 1): 1, (2, 2): 1}, [(1, 1), (1, 2)])
    >>> found["ratio"], round(found["p"], 3)  # one choice of six
    (3.0, 0.167)
    """
    known = {pair: value for pair, value in values.items() if value is not None}
    n_censored = len(values) - len(known)
    if n_censored:
        return {"ratio": None, "p": None, "n_censored": n_censored}
    ratios = [_ratio(known, each) for each in combinations(known, len(ones))]
    ratio = _ratio(known, ones)
    p = sum(each >= ratio - _SAME for each in ratios) / len(ratios)
    return {"ratio": ratio, "p": p, "n_censored": 0}


def _ratio(values: Mapping[Pair, float], ones: Collection[Pair]) -> float:
    chosen = [values[pair] for pair in ones]
    others = [value for pair, value in values.items() if pair not in ones]
    return float(np.mean(chosen) / np.mean(others))


def paired(broken: Steps, control: Steps) -> dict[str, Any]:
    """How much later each pair is fit in the broken run than in its control, the step over the step.

    Returns:
        `ratios`: every pair -> ratio (None where a step is censored); `others`: the mean of the twelve that
        are not `MARKED`, `n_others` of them being known; `broken_over_others` and `obeying_over_others`: what
        `against` says of `BROKEN`, and of (1, 1) and (2, 2), against the twelve.
    """
    ratios = {
        pair: step / before if step is not None and (before := control[pair]) is not None else None
        for pair, step in broken.items()
    }
    others = {pair: ratio for pair, ratio in ratios.items() if pair not in MARKED}
    known = [ratio for ratio in others.values() if ratio is not None]
    obeying = [pair for pair in MARKED if pair not in BROKEN]
    return {
        "ratios": {text(pair): ratio for pair, ratio in ratios.items()},
        "others": float(np.mean(known)) if known else None,
        "n_others": len(known),
        "broken_over_others": against(others | {pair: ratios[pair] for pair in BROKEN}, BROKEN),
        "obeying_over_others": against(others | {pair: ratios[pair] for pair in obeying}, obeying),
    }


def summary(courses: Sequence[Course]) -> list[dict[str, Any]]:
    """For each threshold, reading, gamma and seed: the four against the twelve, broken against control.

    `latest` of each: its pairs from the last that is fit to the first, censored ones before all.
    """
    found = {(each.gamma, each.seed, each.broken): each for each in courses}
    rows = []
    for threshold in THRESHOLDS:
        for reading in READINGS:
            for gamma, seed in dict.fromkeys((each.gamma, each.seed) for each in courses):
                run, control = (
                    found[gamma, seed, broken].fit_steps(threshold, reading) for broken in (True, False)
                )
                rows.append(
                    {
                        "threshold": threshold,
                        "reading": reading,
                        "gamma": gamma,
                        "seed": seed,
                        "broken": {**against(run, MARKED), "latest": latest(run)},
                        "control": {**against(control, MARKED), "latest": latest(control)},
                        "paired": paired(run, control),
                    }
                )
    return rows


def seeds_together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the seeds of one gamma, threshold and reading say together.

    Args:
        rows: of `summary`, one for each seed; no pair is censored.

    Returns:
        `n`, the number of seeds. By pair: `ratios`, its ratio to the control in each seed; `slower`, in how
        many seeds that is above the mean of the twelve; `among_last` and `last`, in how many it is among the
        last four that are fit, or the last of all. Of the four `MARKED`: `all_slower`, in how many seeds each
        is above the mean of the twelve; `all_last`, in how many they are the last four; `excess`, their mean
        minus that of the twelve in each seed. `early_in_control`: in how many seeds both `BROKEN` are among
        the first four of the control; `without_2`: the mean of the eight others without anchor 2 in each
        seed.
    """
    pairs = list(rows[0]["paired"]["ratios"])
    marked = [text(pair) for pair in MARKED]
    ratios = {pair: [row["paired"]["ratios"][pair] for row in rows] for pair in pairs}
    others = [row["paired"]["others"] for row in rows]
    slower = {
        pair: [ratio > other for ratio, other in zip(ratios[pair], others, strict=True)] for pair in pairs
    }
    last, early = ([row[run]["latest"] for row in rows] for run in ("broken", "control"))
    without_2 = [pair for pair in pairs if pair not in marked and "2" not in pair]
    of_four, of_eight = (
        np.mean([ratios[pair] for pair in some], axis=0).tolist() for some in (marked, without_2)
    )
    return {
        "n": len(rows),
        "ratios": ratios,
        "slower": {pair: sum(found) for pair, found in slower.items()},
        "among_last": {pair: sum(pair in order[:4] for order in last) for pair in pairs},
        "last": {pair: sum(pair == order[0] for order in last) for pair in pairs},
        "early_in_control": sum(set(map(text, BROKEN)) <= set(order[-4:]) for order in early),
        "all_slower": sum(all(slower[pair][k] for pair in marked) for k in range(len(rows))),
        "all_last": sum(set(order[:4]) == set(marked) for order in last),
        "excess": [four - other for four, other in zip(of_four, others, strict=True)],
        "without_2": of_eight,
    }


def latest(values: Steps) -> list[str]:
    """The pairs from the last that is fit to the first; those that are not fit come before all.

    >>> latest({(1, 1): 3.0, (1, 2): None, (2, 1): 4.0})
    ['1,2', '2,1', '1,1']
    """
    steps = {pair: math.inf if step is None else step for pair, step in values.items()}
    return [text(pair) for pair in sorted(steps, key=lambda pair: -steps[pair])]


def text(pair: Pair) -> str:
    """A pair as a name.

    >>> text((1, 2))
    '1,2'
    """
    return ",".join(map(str, pair))
