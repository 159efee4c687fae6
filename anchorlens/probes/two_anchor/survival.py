"""Survival: whether a model still answers pairs that were excluded from further training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.engine.numerics import numeric_settings
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.plots import BLUE, ORANGE, styled
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.checks import check_count, check_inputs
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.parameters import Copies
from anchorlens.probes.two_anchor.gradient_sharing import weights_of_parts
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

LOST, KNOWN = 0.3, 0.5
"""The least divisor of a ratio, and the accuracy from which the other pairs are known."""
DOSES = (1.0, 1.5, 2.25)
"""The noise that is tried, the smallest first, in units of a matrix's root mean square."""
FEWEST_UPDATES = 80
"""The mean number of updates to restore the others below which more noise is tried."""
LEARNING_RATE, WEIGHT_DECAY = 2e-3, 0.1
"""The constant learning rate and the decoupled decay of every parameter of AdamW."""
RESTORED = 0.9
"""The accuracy of the other pairs at which a copy is restored, and its group is tested."""
EVERY, MOST_UPDATES = 40, 400
"""The updates between two measurements, and the most updates of a copy."""


@probe_result
class Survival(ProbeResult):
    """The accuracy of restored copies on held-out trained pairs, and on all other trained pairs."""

    probe = "survival"
    readings = ("survival", "left_out", "others", "mean_updates", "noise")
    groups: np.ndarray
    """[copy, anchor] The anchors of the group that each copy's training leaves out, ascending. A group holds
    every trained order of its anchors. If the task has few groups, the copies use some groups several
    times."""
    left_out_accuracies: np.ndarray
    """[copy] The accuracy of the left-out group when the other pairs are restored, 0..1."""
    other_accuracies: np.ndarray
    """[copy] The accuracy of the other trained pairs at the same update, 0..1."""
    updates: np.ndarray
    """[copy] The number of updates until the accuracy of the other pairs is 0.9, or 400 if the accuracy stays
    below."""
    ratios: np.ndarray
    """[copy] The ratio of `left_out_accuracies` to `other_accuracies`, at most 1."""
    survival: float | None
    """The mean ratio over copies of a group, and over groups, 0..1. At 1, the model answers left-out pairs as
    well as trained pairs. At 0, left-out pairs are not relearnt. `None` if no copy answers the other pairs
    with accuracy 0.5."""
    left_out: float | None
    """The mean accuracy of the left-out groups, 0..1, or `None` without groups."""
    others: float | None
    """The mean accuracy of the other pairs at the same update, 0..1, or `None` without groups."""
    mean_updates: float | None
    """The mean of `updates`, or `None` without groups."""
    noise: float
    """The standard deviation of the noise, in units of each matrix's root mean square, or 0 without
    groups."""
    n_groups: int
    """The number of different groups."""
    batch_size: int
    """The number of sequences in an update of a copy."""
    n_sequences: int
    """The number of test inputs for each group, and for the other pairs."""
    seed: int
    """The seed of the noise on weights, and of keys, positions and noise tokens."""

    def headline(self) -> str:
        """Return `survival`, and the accuracies on held-out and on all other trained pairs, as text."""
        if self.left_out is None or self.others is None:
            return "no trained pairs of different anchors can be left out of this task"
        updates = f"{self.mean_updates:.0f} updates after noise of {self.noise:g}"
        after = f"{updates}, the others at {self.others:.2f}"
        if self.survival is None:
            return f"the others do not come back: left-out pairs at {self.left_out:.2f} {after}"
        return f"{self.survival:.2f}: accuracy {self.left_out:.2f} on left-out pairs {after}"

    def plot(self) -> go.Figure:
        """Plot the mean accuracy over copies on each held-out group, and on all other trained pairs."""
        names = [", ".join(map(str, anchors)) for anchors in self.groups.tolist()]
        copies = {name: [k for k, one in enumerate(names) if one == name] for name in names}
        figure = go.Figure()
        for name, colour, values in (
            ("left out", ORANGE, self.left_out_accuracies),
            ("the others", BLUE, self.other_accuracies),
        ):
            means = np.array([values[own].mean() for own in copies.values()])
            figure.add_bar(x=[*copies], y=means, name=name, marker_color=colour)
        figure.update_xaxes(title="anchors left out", type="category")
        figure.update_yaxes(title="accuracy", range=[0, 1.02])
        figure.update_layout(legend={"orientation": "h", "y": -0.28, "yanchor": "top"})
        return styled(figure, "Accuracy of relearnt and left-out pairs", height=360)


@takes_any(costly=True)
def survival(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    noise: float | None = None,
    batch_size: int = 96,
    n_copies: int = 6,
    n_sequences: int = 128,
    seed: int = 0,
) -> Survival:
    """Measure whether a disturbed model regains its accuracy on trained pairs held out of further training.

    The probe copies the model, and adds Gaussian noise as large as the weights to every weight matrix of each
    copy. A group of trained pairs contains the trained orders of two anchors. AdamW (learning rate 2e-3,
    weight decay 0.1) trains each copy on all trained pairs except one group. The training of a copy ends when
    the copy's accuracy on its training pairs is 0.9 again, or after 400 updates. This training restores the
    weights that all pairs share. If a held-out group uses shared weights, the accuracy on the group also
    recovers. Weights that only the group uses are not restored. If the copies need fewer than 80 updates on
    average, the probe starts again with more noise. The noise levels are 1, 1.5 and 2.25 times the root mean
    square of each matrix.

    The probe does not use unseen pairs. The model does not change, because the probe trains copies of its
    weights. For a model of `quick` size, the probe takes about half a minute on one core.

    Limitations: The probe does not show the rule by which the model computes an answer. The accuracy on a
    group recovers less in any model if few other trained pairs contain the group's anchors.

    Args:
        model: any HookedTransformer, or a native TransformerBridge.
        task: the task that gives the trained pairs, their sequences and targets. In chains of more than two
            anchors, a group contains every trained order of the same anchors. A group contains no pair of an
            anchor with itself, and no pair trained on a target other than its composition.
        noise: the standard deviation of the noise, at least 0, in units of each matrix's root mean square.
            Default: the smallest sufficient noise level of 1, 1.5 and 2.25.
        batch_size: the number of fresh sequences in an update of a copy, at least 1.
        n_copies: the number of copies, at least 1. Each copy holds out one group. The probe prefers groups
            whose anchors occur in many other trained pairs. If the task has fewer groups than copies, several
            copies hold out the same group with different noise.
        n_sequences: the number of test inputs for each group, and for the trained pairs outside the group, at
            least 1.
        seed: the seed of the noise on weights, and of keys, positions and noise tokens.

    Returns:
        The accuracies of each copy on its held-out group and on all other trained pairs, from 0 to 1. The
        result also contains the ratios of the two accuracies, the numbers of updates and the noise.

    Raises:
        ValueError: If the model does not have the parameters of a HookedTransformer.
        ValueError: If the model is too small for the task.
        ValueError: If an option is out of range.

    Example:
        >>> from anchorlens import load_checkpoint
        >>> from anchorlens.training import checkpoints
        >>> phase3 = load_checkpoint(checkpoints.shipped()[-1])
        >>> survival(phase3, n_copies=1).survival > 0.45
        True

    Source: The probe is ours. Networks forget data without further training on these data (McCloskey and
    Cohen 1989, catastrophic interference). Solutions that generalise withstand noise on their weights
    (Hochreiter and Schmidhuber 1997, flat minima).
    """
    check_inputs(model, task)
    for name, value in {"batch_size": batch_size, "n_copies": n_copies, "n_sequences": n_sequences}.items():
        check_count(name, value)
    if noise is not None:
        check_number("noise", noise, minimum=0, maximum=100)
    weights_of_parts(model)  # refuses a model with other parameter names
    groups = groups_to_leave_out(task, n_copies)
    anchors = [*groups][:n_copies] * n_copies
    anchors = anchors[: n_copies if groups else 0]
    dose, found = 0.0, Restoration(*np.empty((3, 0)))
    for dose in (DOSES if noise is None else (noise,)) if groups else ():
        found = restored_without(
            model, task, [groups[one] for one in anchors],
            noise=dose, batch_size=batch_size, n_sequences=n_sequences, seed=seed,
        )  # fmt: skip
        if found.updates.mean() >= FEWEST_UPDATES:
            break
    is_known = bool((found.others >= KNOWN).any())
    ratios = np.minimum(1, found.left_out / np.maximum(found.others, LOST))
    of_groups = [ratios[k :: len(groups)].mean() for k in range(len(groups))]
    return Survival(
        groups=np.array(anchors, dtype=int).reshape(-1, task.chain_length),
        left_out_accuracies=found.left_out,
        other_accuracies=found.others,
        updates=found.updates,
        ratios=ratios,
        survival=float(np.mean(of_groups)) if is_known else None,
        left_out=float(found.left_out.mean()) if groups else None,
        others=float(found.others.mean()) if groups else None,
        mean_updates=float(found.updates.mean()) if groups else None,
        noise=dose,
        n_groups=len(groups),
        batch_size=batch_size,
        n_sequences=n_sequences,
        seed=seed,
    )


def standard_error(results: Sequence[Any]) -> float:
    """Return the standard error of the mean of `survival` over results of `survival` with different seeds.

    The error comes from copies that leave out the same group. For a single measurement, it comes from all
    copies, whose groups differ, so it is rather too large.
    """
    ratios = np.array([one.ratios for one in results])  # [measurement, copy]
    spread = ratios.var(axis=0 if len(results) > 1 else 1, ddof=1)
    return float(np.sqrt(spread.mean() / ratios.size))


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
    trained = np.arange(len(groups))  # the copies that are not yet restored
    with evaluation_mode(model), numeric_settings(device_of(model)):
        copies = Copies(model, len(groups), vocabulary, noise=noise, rng=generator(seed, "probe", 1))
        tokens, targets = batch(others, EVERY * batch_size, 3)
        for update in range(1, MOST_UPDATES + 1):
            k = (update - 1) % EVERY
            if k == 0 and update > 1:
                tokens, targets = batch([others[one] for one in trained], EVERY * batch_size, 2 + update)
            now = slice(k * batch_size, (k + 1) * batch_size)
            losses = copies.answers(tokens[:, now], targets[:, now]).losses
            copies.update(losses, LEARNING_RATE, torch.full_like(losses, WEIGHT_DECAY, dtype=torch.float64))
            if update % EVERY == 0:
                accuracies = [copies.accuracies(*(x[trained] for x in each)).cpu() for each in questions]
                ended = ((accuracies[1] >= RESTORED) | (update == MOST_UPDATES)).numpy()
                for found, values in zip((left_out, back), accuracies, strict=True):
                    found[trained[ended]] = values.numpy()[ended]
                updates[trained[ended]] = update
                if ended.all():
                    break
                if ended.any():
                    copies.keep(np.flatnonzero(~ended).tolist())
                    trained = trained[~ended]
    return Restoration(left_out, back, updates.astype(int))
