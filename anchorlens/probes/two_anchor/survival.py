"""Survival: whether a model still answers pairs that were excluded from further training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.plots import BLUE, ORANGE
from anchorlens.plots.bars import accuracy_bars
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import MOST_SEQUENCES, check_inputs
from anchorlens.probes.shared.pair_gradients import weights_of_parts
from anchorlens.probes.shared.restoration import Restoration, groups_to_leave_out, restored_without
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

LOST, KNOWN = 0.3, 0.5
"""The least divisor of a ratio, and the accuracy from which the other pairs are known."""
DOSES = (1.0, 1.5, 2.25)
"""The noise that is tried, the smallest first, in units of a matrix's root mean square."""
FEWEST_UPDATES = 80
"""The mean number of updates to restore the others below which more noise is tried."""


@probe_result
class Survival(ProbeResult):
    """The accuracy of restored copies on held-out trained pairs, and on all other trained pairs."""

    probe: ClassVar[str] = "survival"
    readings: ClassVar[tuple[str, ...]] = ("survival", "left_out", "others", "mean_updates", "noise")
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
        after = (
            f"{self.mean_updates:.0f} updates after noise of {self.noise:g}, the others at {self.others:.2f}"
        )
        if self.survival is None:
            return f"the others do not come back: left-out pairs at {self.left_out:.2f} {after}"
        return f"{self.survival:.2f}: accuracy {self.left_out:.2f} on left-out pairs {after}"

    def plot(self) -> go.Figure:
        """Plot the mean accuracy over copies on each held-out group, and on all other trained pairs."""
        names = [", ".join(map(str, anchors)) for anchors in self.groups.tolist()]
        copies = {name: [k for k, one in enumerate(names) if one == name] for name in names}
        bars = {
            name: (colour, np.array([values[own].mean() for own in copies.values()]))
            for name, colour, values in (
                ("left out", ORANGE, self.left_out_accuracies),
                ("the others", BLUE, self.other_accuracies),
            )
        }
        return accuracy_bars("Accuracy of relearnt and left-out pairs", [*copies], bars, "anchors left out")


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
        >>> survival(phase3, n_copies=2).survival > 0.45
        True

    Source: The probe is ours. Networks forget data without further training on these data (McCloskey and
    Cohen 1989, catastrophic interference). Solutions that generalise withstand noise on their weights
    (Hochreiter and Schmidhuber 1997, flat minima).
    """
    check_inputs(model, task)
    for name, value in {"batch_size": batch_size, "n_copies": n_copies, "n_sequences": n_sequences}.items():
        check_number(name, value, minimum=1, limit=MOST_SEQUENCES, integer=True)
    check_number("seed", seed, minimum=0, integer=True)
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
