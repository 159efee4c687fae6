"""Train models and evaluate them on every mapping during training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from anchorlens.engine import Stack, numeric_settings
from anchorlens.extras.audit.mappings import Mappings
from anchorlens.models import choose_device
from anchorlens.randomness import generator
from anchorlens.recipes import RunConfig
from anchorlens.tasks import AnchorBatch
from anchorlens.training import TrainingDiverged, check_runs, train_in_jobs

_BATCH = 1024
"""The number of sequences in one forward pass."""


def watch(
    runs: Sequence[RunConfig],
    data: Sequence[Mappings],
    evaluation_steps: Sequence[int],
    n_draws: int,
    *,
    workers: int | None = None,
    progress: bool | float | None = None,
) -> Float[np.ndarray, "run evaluation mapping"]:
    """Train runs of equal shape on mappings, and evaluate every mapping at every evaluation step.

    The seed of a run determines the initial weights, the training sequences and their order, and the
    evaluation sequences. All evaluations of a run use the same sequences. On CUDA, the runs train together as
    one stack. On the CPU, each run has a separate process.

    Args:
        runs: the model and recipe of each run. The function uses the tasks of `data` instead of the tasks of
            `runs`.
        data: the mappings on which each run is trained and evaluated. All mappings must be from one dataset.
        evaluation_steps: the steps of the evaluations, ascending. Training ends after the last step.
        n_draws: the number of sequences of each mapping at every evaluation.
        workers: the number of processes on the CPU. Default: one per core.
        progress: the display of progress, as for `train`.

    Returns:
        The probability of each mapping's trained target, 0..1, averaged over the sequences of the mapping.

    Raises:
        ValueError: If this machine cannot train the runs.
        TrainingDiverged: If a loss became NaN or infinite.
        RuntimeError: If a worker process was killed.
    """
    watched = functools.partial(_watch_stack, evaluation_steps=evaluation_steps, n_draws=n_draws)
    return np.stack(train_in_jobs(watched, check_runs(runs), data, workers=workers, progress=progress))


def _watch_stack(
    runs: Sequence[RunConfig],
    data: Sequence[Mappings],
    show: Callable[[int, str], None] = lambda done, text: None,
    *,
    evaluation_steps: Sequence[int],
    n_draws: int,
) -> Float[np.ndarray, "run evaluation mapping"]:
    """Train and evaluate runs in one stack in this process."""
    train = runs[0].train_config
    device = choose_device(train.device)
    each = [(mappings, run.train_config.seed) for mappings, run in zip(data, runs, strict=True)]
    trained = [mappings.training_set(train.n_samples, generator(seed, "data")) for mappings, seed in each]
    questions = [mappings.questions(n_draws, generator(seed, "evaluation")) for mappings, seed in each]
    right = np.empty((len(runs), len(evaluation_steps), len(data[0])), dtype=np.float32)
    with numeric_settings(device, train.threads, tf32=train.matmul == "tf32"):
        stack = Stack(runs, trained, device)
        show(0, "")
        for place, evaluation in enumerate(evaluation_steps):
            updates = stack.advance(evaluation)
            for k, (run, update) in enumerate(zip(runs, updates, strict=True)):
                if update.failed_at is not None:
                    raise TrainingDiverged(
                        f"the loss and the gradient norm of the run with seed {run.train_config.seed} must "
                        f"be finite, got NaN or infinity at step {update.failed_at}. Use a smaller lr or "
                        "weight_decay, or a larger gamma"
                    )
                probabilities = _probabilities(stack, k, questions[k])
                right[k, place] = probabilities.reshape(n_draws, -1).mean(axis=0)
            losses = sum(update.loss for update in updates) / len(updates)
            show(len(runs) * evaluation, f"loss {losses:.4f}")
    return right


def _probabilities(stack: Stack, member: int, batch: AnchorBatch) -> Float[np.ndarray, " batch"]:
    """Compute the probability that a member assigns to the target of each sequence."""
    model = stack.model(member)
    probabilities = []
    with torch.inference_mode():
        for tokens, targets in zip(batch.tokens.split(_BATCH), batch.targets.split(_BATCH), strict=True):
            shares = model(tokens)[:, -1].softmax(dim=-1)  # [batch, d_vocab]
            of_targets = shares.gather(1, targets.to(shares.device).unsqueeze(1))
            probabilities.append(of_targets.squeeze(1).cpu().numpy())
    return np.concatenate(probabilities)
