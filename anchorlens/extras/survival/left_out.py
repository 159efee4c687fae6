"""Training copies of a model further without some of its trained pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlens.models.running import device_of, evaluation_mode, sequences_per_batch
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.further_training import AdamW
from anchorlens.probes.shared.tangent_kernel import differentiated, usable_state
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.engine.numerics import numeric_settings

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

LEARNING_RATE = 2e-3
"""Constant learning rate of AdamW, with betas .9 and .999, eps 1e-8, and no clipping."""
WEIGHT_DECAY = 5.0
"""Decoupled decay of every parameter: an update shrinks it by lr x decay = 1 %, and 80 updates by 55 %."""


class Accuracies(NamedTuple):
    """Accuracies, 0..1, for each group that was left out."""

    before: Float[np.ndarray, " group"]
    """Accuracy of the group before further training."""
    left_out: Float[np.ndarray, " group"]
    """Accuracy of the group after training without it."""
    others: Float[np.ndarray, " group"]
    """Accuracy of the other trained pairs after that training."""


def groups_to_leave_out(task: AnchorTask, most: int, seed: int) -> dict[Pair, list[Pair]]:
    """Anchors in ascending order -> every trained order of them; anchors that are all the same are left out.

    A group is also left out if nothing else is trained. If there are more than `most` groups, `most` are
    drawn.
    """
    groups: dict[Pair, list[Pair]] = {}
    for pair in task.seen_pairs:
        if len(set(pair)) > 1:
            groups.setdefault(tuple(sorted(pair)), []).append(pair)
    groups = {anchors: pairs for anchors, pairs in groups.items() if len(pairs) < len(task.seen_pairs)}
    if len(groups) <= most:
        return groups
    chosen = generator(seed, "probe", 1).choice(len(groups), most, replace=False)
    names = list(groups)
    return {names[k]: groups[names[k]] for k in sorted(chosen)}


def accuracies_without(
    model: HookedTransformer,
    task: AnchorTask,
    groups: Sequence[Sequence[Pair]],
    *,
    n_steps: int,
    batch_size: int,
    n_sequences: int,
    seed: int,
) -> Accuracies:
    """Train a copy of the model further without each group, and measure it on the group and the other pairs.

    The model itself is only read. The questions have the same keys, positions and noise for every group, and
    so have the training sequences of groups of equal size.

    Args:
        model: the model to copy; all parameters of the copy are trained, also frozen ones.
        task: gives the sequences and their trained targets.
        groups: the trained pairs of each group; no group holds all of them.
        n_steps: number of updates.
        batch_size: number of fresh sequences in an update.
        n_sequences: number of questions for a group, and for the others, spread evenly over the pairs.
        seed: random seed.
    """
    module, device = differentiated(model), device_of(model)
    at_once = sequences_per_batch(model, task.seq_len)
    found: list[tuple[float, float, float]] = []
    with evaluation_mode(model), numeric_settings(device):
        state = usable_state(module)
        trained = [name for name, _ in module.named_parameters()]

        def accuracy(tensors: Mapping[str, Tensor], pairs: Sequence[Pair]) -> float:
            chosen = np.array(pairs)[np.arange(n_sequences) % len(pairs)]
            batch = at_trained_places(task, chosen, generator(seed, "probe", 2))
            return _accuracy(module, tensors, batch, at_once, device)

        for group in groups:
            others = [pair for pair in task.seen_pairs if pair not in group]
            rng = generator(seed, "probe", 3)
            weights = {name: state[name].clone().requires_grad_() for name in trained}
            optimizer = AdamW(list(weights.values()), LEARNING_RATE)
            for _ in range(n_steps):
                chosen = np.array(others)[rng.integers(0, len(others), batch_size)]
                batch = at_trained_places(task, chosen, rng)
                logits = _answers(module, {**state, **weights}, batch.tokens.to(device))
                loss = functional.cross_entropy(logits, batch.targets.to(device))
                gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
                optimizer.update(gradients, WEIGHT_DECAY)
            after = {**state, **weights}
            found.append((accuracy(state, group), accuracy(after, group), accuracy(after, others)))
    return Accuracies(*np.array(found, dtype=float).reshape(-1, 3).T)


def _answers(module: nn.Module, state: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Logits at the last position: [sequence, d_vocab]."""
    return torch.func.functional_call(module, state, (tokens,))[:, -1]


@torch.no_grad()
def _accuracy(
    module: nn.Module, state: Mapping[str, Tensor], batch: AnchorBatch, at_once: int, device: torch.device
) -> float:
    right = 0
    for tokens, targets in zip(batch.tokens.split(at_once), batch.targets.split(at_once), strict=True):
        answers = _answers(module, dict(state), tokens.to(device)).argmax(dim=-1)
        right += int((answers == targets.to(device)).sum())
    return right / len(batch)
