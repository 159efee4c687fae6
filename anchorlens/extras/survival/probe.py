"""Survival: whether the model still answers pairs that were left out of further training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from anchorlens.configuration import check_number
from anchorlens.extras.survival.left_out import Accuracies, accuracies_without, groups_to_leave_out
from anchorlens.extras.survival.picture import accuracy_bars
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import MOST_SEQUENCES, check_inputs
from anchorlens.probes.shared.pair_gradients import weights_of_parts
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.show.figures import BLUE, GREY, ORANGE
from anchorlens.show.words import CAPTIONS, captions_in
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

CAPTIONS.update(captions_in(Path(__file__).parent / "captions.toml"))

KNOWN = 0.5
"""Accuracy at and above which pairs count as known."""


@probe_result
class Survival(ProbeResult):
    """Accuracy of groups of trained pairs after training without them, and that of the other pairs."""

    probe: ClassVar[str] = "survival"
    readings: ClassVar[tuple[str, ...]] = ("survival", "left_out", "others")
    groups: np.ndarray
    """[group, anchor] Anchors of each group, ascending; a group holds every trained order of its anchors."""
    accuracies_before: np.ndarray
    """[group] Accuracy of the group before further training, 0..1: the control."""
    left_out_accuracies: np.ndarray
    """[group] Accuracy of the group after training without it, 0..1."""
    other_accuracies: np.ndarray
    """[group] Accuracy of the other trained pairs after that training, 0..1."""
    ratios: np.ndarray
    """[group] `left_out_accuracies` divided by `other_accuracies`, at most 1; NaN where the group was not
    known before (accuracy below .5) or the others are not known after."""
    survival: float | None
    """Mean ratio, 0..1: 1 = pairs left out are answered as well as those trained, 0 = they are forgotten.
    None where no group has a ratio."""
    left_out: float | None
    """Mean accuracy of the left-out groups, 0..1; None where there are none."""
    others: float | None
    """Mean accuracy of the other pairs after the same training, 0..1; None where there are no groups."""
    n_steps: int
    """Number of updates without each group."""
    batch_size: int
    """Number of sequences in an update."""
    n_sequences: int
    """Number of questions for each group, and for the other pairs."""
    seed: int
    """Seed of the groups, keys, positions and noise."""

    def headline(self) -> str:
        """How well the left-out pairs are still answered."""
        if self.left_out is None or self.others is None:
            return "no trained pairs of different anchors can be left out of this task"
        after = f"after {self.n_steps} updates without them, the others at {self.others:.2f}"
        if self.survival is None:
            return f"knows nothing to forget: left-out pairs at {self.left_out:.2f} {after}"
        return f"{self.survival:.2f}: accuracy {self.left_out:.2f} on left-out pairs {after}"

    def plot(self) -> go.Figure:
        """Three bars for each group: its accuracy before and after training without it, and the others'."""
        names = [", ".join(map(str, anchors)) for anchors in self.groups.tolist()]
        bars = {
            "before": (GREY, self.accuracies_before),
            "left out": (ORANGE, self.left_out_accuracies),
            "the others": (BLUE, self.other_accuracies),
        }
        return accuracy_bars("Do pairs survive without training?", names, bars, "anchors left out")


@takes_any
def survival(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    n_steps: int = 80,
    batch_size: int = 128,
    n_groups: int = 6,
    n_sequences: int = 512,
    seed: int = 0,
) -> Survival:
    """Measure whether a model still answers pairs that are left out of further training.

    For each group of trained pairs, {a, b} in the orders that are trained, AdamW (learning rate 2e-3, decay
    5) trains a copy of the model further on fresh trained sequences of all other pairs. The decay shrinks
    weights that these pairs do not need: weights that all pairs use are kept, and those of the group alone
    are forgotten. Trained models are in between; models that compose keep more on average (docs/probes.md).

    The probe does not use unseen pairs. The model is only read: copies of its weights are trained, half a
    minute on one core for a model of `quick` size.

    Blind to: the rule by which the model answers a pair, and a table whose entries share no weights, since
    decay makes the entries smaller but not wrong. A model that composes also forgets a pair that was trained
    on another target than its composition (`conflict`, `overrides`).

    Args:
        model: any HookedTransformer, or a native TransformerBridge.
        task: gives the trained pairs, their sequences and targets. In chains of more than two anchors a group
            is every trained order of the same anchors. A pair of an anchor with itself forms no group.
        n_steps: number of updates without each group, >= 1.
        batch_size: number of fresh sequences in an update, >= 1.
        n_groups: largest number of groups, >= 1; if there are more, this many are drawn.
        n_sequences: number of questions for each group, and for the other pairs, >= 1.
        seed: seed of the keys, positions and noise, and of the draw of groups.

    Returns:
        Accuracies, 0..1, of each group before, of the group and the other pairs after, and their ratios.

    Raises:
        ValueError: a model without HookedTransformer's parameters, too small for the task, or a number out
            of range.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> start = build_model(ModelConfig(gamma=0.5))
        >>> survival(start, AnchorTask(), n_steps=1).survival is None  # it knows nothing to forget
        True

    Source: ours; networks forget what they no longer train on (McCloskey and Cohen 1989, catastrophic
    interference), and weight decay shrinks weights that training does not need.
    """
    check_inputs(model, task)
    for name, value in {
        "n_steps": n_steps, "batch_size": batch_size, "n_groups": n_groups, "n_sequences": n_sequences
    }.items():  # fmt: skip
        check_number(name, value, minimum=1, limit=MOST_SEQUENCES, integer=True)
    check_number("seed", seed, minimum=0, integer=True)
    weights_of_parts(model)  # refuses a model with other parameter names
    groups = groups_to_leave_out(task, n_groups, seed)
    found = accuracies_without(
        model,
        task,
        list(groups.values()),
        n_steps=n_steps,
        batch_size=batch_size,
        n_sequences=n_sequences,
        seed=seed,
    )
    ratios = survival_ratios(found)
    there = ratios[np.isfinite(ratios)]
    return Survival(
        groups=np.array(list(groups), dtype=int).reshape(-1, task.chain_length),
        accuracies_before=found.before,
        left_out_accuracies=found.left_out,
        other_accuracies=found.others,
        ratios=ratios,
        survival=float(there.mean()) if len(there) else None,
        left_out=float(found.left_out.mean()) if groups else None,
        others=float(found.others.mean()) if groups else None,
        n_steps=n_steps,
        batch_size=batch_size,
        n_sequences=n_sequences,
        seed=seed,
    )


survival.costly = True


def survival_ratios(found: Accuracies) -> Float[np.ndarray, " group"]:
    """Accuracy of each group divided by that of the others, at most 1.

    Returns:
        0..1; NaN where the accuracy of the group before, or of the others after, is below .5.

    >>> half = np.array([0.5])
    >>> survival_ratios(Accuracies(before=np.array([1.0]), left_out=half / 2, others=half))
    array([0.5])
    """
    known = (found.before >= KNOWN) & (found.others >= KNOWN)
    return np.where(known, np.minimum(1, found.left_out / np.maximum(found.others, KNOWN)), np.nan)
