"""Learning rate, weight decay, data order, checkpoints and early stop, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.randomness import generator
from anchorlens.recipes.interventions import value_at
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.shared.measures import Metric

if TYPE_CHECKING:
    from jaxtyping import Int

    from anchorlens.models.config import Part

FIT = 0.99
"""Train accuracy from which the training data count as fit, for early stopping."""
STILL = 0.01
"""Largest change of a metric that counts as no change, for early stopping."""
LOSS_LINES = 5
"""Number of log lines whose mean loss is compared with `stop_at_loss`."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate at the update from `step` to `step + 1`.

    During the warm-up, the learning rate grows linearly from lr_start_factor * lr to lr. After the warm-up,
    the rate falls along half a cosine or a straight line to lr_end_factor * lr at the last step. The half
    cosine is the recipe of arXiv 2405.05409 and 2501.08537. In a window with another lr, the window's lr
    takes the place of lr.

    >>> config = TrainConfig(lr=1.0, steps=300, warmup_steps=100)
    >>> [round(learning_rate(config, step), 3) for step in (0, 49, 99, 199, 299)]
    [0.01, 0.5, 1.0, 0.525, 0.05]
    """
    done = step + 1
    peak = value_at(config.lr, step, config.total_steps)
    warmup = config.total_warmup_steps
    if done <= warmup:
        start = config.lr_start_factor
        return peak * (start + (1 - start) * done / warmup)
    progress = min(1.0, (done - warmup) / max(1, config.total_steps - warmup))
    left = 1 - progress if config.lr_decay == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (config.lr_end_factor + (1 - config.lr_end_factor) * left)


def weight_decay(config: TrainConfig, step: int, part: Part | None = None) -> float:
    """Return the weight decay at the update from `step` to `step + 1`.

    If `part` is None, or has no weight decay of its own, the function returns the general weight decay.

    >>> config = TrainConfig(steps=4, weight_decay="0 0.25:0.5=1.0", weight_decay_qk=0.3)
    >>> [weight_decay(config, step) for step in range(4)], weight_decay(config, 1, "qk")
    ([0.0, 1.0, 0.0, 0.0], 0.3)
    """
    own = None if part is None else getattr(config, f"weight_decay_{part}")
    return float(value_at(config.weight_decay if own is None else own, step, config.total_steps))


def epoch_order(config: TrainConfig, epoch: int) -> Int[np.ndarray, " n_samples"]:
    """Return the order of the training examples in an epoch, as a function of the seed and the epoch."""
    return generator(config.seed, "order", epoch).permutation(config.n_samples)


def trajectory_steps(config: TrainConfig) -> list[int]:
    """Return the steps at which checkpoints are saved: 0, and log-spaced steps from 1 to the last step.

    >>> trajectory_steps(TrainConfig(steps=1000, n_checkpoints=4))
    [0, 1, 10, 100, 1000]
    """
    if config.n_checkpoints == 0:
        return []
    spaced = np.geomspace(1, config.total_steps, config.n_checkpoints)
    return sorted({0, config.total_steps, *(int(round(step)) for step in spaced)})


def has_converged(evaluations: Sequence[Mapping[str, Any]], patience: int, metrics: Sequence[Metric]) -> bool:
    """Return whether the model fits its training data and no metric changes in the last evaluations.

    The train accuracy must be at least 0.99, and each metric may vary by at most 0.01.

    Args:
        evaluations: the log lines that contain the task's metrics, oldest first.
        patience: the number of consecutive evaluations without a change, at least 1.
        metrics: the task's metrics. The metric `train` is the train accuracy.
    """
    recent = evaluations[-(patience + 1) :]
    names = {metric.name: metric.logged_as for metric in metrics if metric.logged_as}
    train = names.get("train")
    if len(recent) <= patience or train is None or any(line[train] < FIT for line in recent):
        return False
    for name in names.values():
        values = [line[name] for line in recent if line.get(name) is not None]
        if values and max(values) - min(values) > STILL:
            return False
    return True


def loss_reached(log: Sequence[Mapping[str, Any]], loss: float) -> int | None:
    """Return the first step at which the mean loss of five log lines in a row is at most `loss`.

    The function uses the mean because the loss of single batches fluctuates. If the run never reaches the
    threshold, the time to the threshold is longer than the run (censored).

    Args:
        log: the log lines of a run, oldest first. Lines without a loss are ignored.
        loss: the threshold in nats.

    Returns:
        The step of the last of the five lines, or None if the run never reaches the threshold.

    >>> losses = [4.0, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]
    >>> loss_reached([{"step": 10 * k, "loss": value} for k, value in enumerate(losses)], 0.1)
    50
    """
    lines = [line for line in log if line.get("loss") is not None]
    for end in range(LOSS_LINES, len(lines) + 1):
        recent = lines[end - LOSS_LINES : end]
        if math.fsum(line["loss"] for line in recent) / LOSS_LINES <= loss:
            return recent[-1]["step"]
    return None
