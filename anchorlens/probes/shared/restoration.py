"""Copies of a model, disturbed by noise on their weights and restored without some of its trained pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens.engine.numerics import numeric_settings
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.further_training import AdamW, Copies
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

LEARNING_RATE, WEIGHT_DECAY = 2e-3, 0.1
"""The constant learning rate and the decoupled decay of every parameter of AdamW."""
RESTORED = 0.9
"""The accuracy of the other pairs at which a copy is restored, and its group is tested."""
EVERY, MOST_UPDATES = 40, 400
"""The updates between two measurements, and the most updates of a copy."""


class Restoration(NamedTuple):
    """The accuracies of each copy at the end of its training, and the number of updates."""

    left_out: Float[np.ndarray, " copy"]
    """The accuracy of the pairs that the copy was restored without, 0..1."""
    others: Float[np.ndarray, " copy"]
    """The accuracy of the other trained pairs at the same moment, 0..1."""
    updates: Int[np.ndarray, " copy"]
    """The number of updates before that moment."""


def groups_to_leave_out(task: AnchorTask, most: int) -> dict[Pair, list[Pair]]:
    """Return a dict from the anchors of each group to its trained pairs, in descending order of support.

    The support of an anchor in a group is the number of trained pairs outside the group with this anchor at
    the same position. The support of a group is the smallest support of its anchors. Each pair of a group has
    different anchors and is trained on the composition. At least one trained pair lies outside each group.
    """
    groups: dict[Pair, list[Pair]] = {}
    for pair in task.seen_pairs:
        if len(set(pair)) > 1:
            groups.setdefault(tuple(sorted(pair)), []).append(pair)
    composed = set(task.composed_pairs)

    def support(pairs: Sequence[Pair]) -> int:
        others = [pair for pair in composed if pair not in pairs]
        return min(sum(o[k] == pair[k] for o in others) for pair in pairs for k in range(len(pair)))

    kept = {
        anchors: pairs
        for anchors, pairs in groups.items()
        if composed.issuperset(pairs) and len(pairs) < len(task.seen_pairs)
    }
    return dict(sorted(kept.items(), key=lambda group: -support(group[1]))[:most])


def restored_without(
    model: HookedTransformer,
    task: AnchorTask,
    groups: Sequence[Sequence[Pair]],
    *,
    noise: float,
    batch_size: int,
    n_sequences: int,
    seed: int,
) -> Restoration:
    """Disturb a copy of the model for each group, and train the copy on all pairs outside the group.

    The model itself does not change. The sequences of all copies have the same keys, positions and noise
    tokens.

    Args:
        model: the model to copy. All parameters of the copies are trained, including parameters that are
            frozen in the model.
        task: the task that gives the sequences and their trained targets.
        groups: for each copy, the trained pairs that are held out of its training. At least one trained pair
            must lie outside each group.
        noise: the standard deviation of the noise on each weight matrix, in units of the matrix's root mean
            square.
        batch_size: the number of fresh sequences in an update.
        n_sequences: the number of test inputs for each group. The pairs outside the group together have the
            same number of test inputs. The inputs are spread evenly over the pairs.
        seed: the random seed.
    """
    others = [[pair for pair in task.seen_pairs if pair not in group] for group in groups]

    def batch(pairs: Sequence[Sequence[Pair]], n: int | None, stream: int) -> tuple[Tensor, Tensor]:
        """Draw `n` random sequences for each copy, or spread `n_sequences` evenly over the copy's pairs."""
        found = []
        for own in pairs:
            rng = generator(seed, "probe", stream)
            places = np.arange(n_sequences) if n is None else (rng.random(n) * len(own)).astype(int)
            found.append(at_trained_places(task, np.array(own)[places % len(own)], rng))
        return torch.stack([one.tokens for one in found]), torch.stack([one.targets for one in found])

    questions = batch(groups, None, 2), batch(others, None, 2)
    every_token = torch.from_numpy(np.resize(np.arange(task.d_vocab), (task.d_vocab, task.seq_len)))
    vocabulary = torch.cat([questions[1][0].flatten(0, 1), every_token])
    left_out, back, updates = (np.full(len(groups), -1.0) for _ in range(3))
    with evaluation_mode(model), numeric_settings(device_of(model)):
        copies = Copies(model, len(groups), vocabulary, noise=noise, rng=generator(seed, "probe", 1))
        optimizer = AdamW(list(copies.weights.values()), LEARNING_RATE)
        tokens, targets = batch(others, EVERY * batch_size, 3)
        for update in range(1, MOST_UPDATES + 1):
            k = (update - 1) % EVERY
            if k == 0 and update > 1:
                tokens, targets = batch(others, EVERY * batch_size, 2 + update)
            now = slice(k * batch_size, (k + 1) * batch_size)
            answers = copies.answers(tokens[:, now], targets[:, now])
            optimizer.update(copies.gradients(answers.losses), WEIGHT_DECAY)
            if update % EVERY == 0:
                open_ = updates < 0
                accuracies = [copies.accuracies(*each).cpu().numpy() for each in questions]
                ended = open_ & ((accuracies[1] >= RESTORED) | (update == MOST_UPDATES))
                left_out[ended], back[ended], updates[ended] = (
                    accuracies[0][ended],
                    accuracies[1][ended],
                    update,
                )
                if (updates > 0).all():
                    break
    return Restoration(left_out, back, updates.astype(int))
