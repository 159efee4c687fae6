"""Fusion similarity: whether inputs with equal targets are similar at the last position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from einops import rearrange

from anchorlens.models.hooks import after_attention
from anchorlens.probes.plots.cosines import key_cosines
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, middle_keys
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import check_inputs, whole_numbers
from anchorlens.probes.shared.clusters import finite_rows
from anchorlens.probes.shared.linalg import compare_groups
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

PAPER_COMPARISONS = (((3, 3), (2, 2)), ((1, 2), (1, 3)))
"""Anchor pairs that the paper compares since they reach equal targets (arXiv 2405.05409, figure 4)."""


@probe_result
class FusionSimilarity(ProbeResult):
    """Cosines of the last position's residual stream after the last attention layer, for two anchor pairs."""

    probe: ClassVar[str] = "fusion_similarity"
    readings: ClassVar[tuple[str, ...]] = ("centred_gap", "gap")
    keys: np.ndarray
    """[key] The keys used with both pairs, as x with the first and as y with the second."""
    comparisons: np.ndarray
    """[comparison, 2, chain_length] The two anchor pairs compared."""
    targets: np.ndarray
    """[comparison, 2, key] Their inferential targets."""
    cosines: np.ndarray
    """[comparison, key, key] Cosine of (x; first pair) and (y; second pair), -1..1."""
    centred_cosines: np.ndarray
    """The same after subtracting the mean vector of both pairs."""
    gaps: np.ndarray
    """[comparison] Mean cosine of inputs with equal targets minus that of inputs with different targets; NaN
    where all targets are equal or all are different."""
    centred_gaps: np.ndarray
    """The same for the centred cosines."""
    gap: float | None
    """Mean of `gaps`; None where all are NaN."""
    centred_gap: float | None
    """Mean of `centred_gaps`: above 0 where inputs with equal targets are similar."""
    nearest_same: float | None
    """Share of the inputs of first pairs whose most similar input among their second pairs has the same
    target, 0..1. Only inputs with a partner of this kind count; None without such inputs."""
    layer: int
    """The last layer, from 0."""

    def headline(self) -> str:
        """The centred gap."""
        if self.centred_gap is None:
            return "the compared pairs reach no equal target on these keys"
        return f"equal target minus different: {self.centred_gap:+.2f} centred, {self.gap:+.2f} raw"

    def plot(self) -> go.Figure:
        """Centred cosines of each comparison; cells of equal targets are boxed."""
        compared = [[",".join(map(str, pair)) for pair in both] for both in self.comparisons.tolist()]
        return key_cosines(
            [str(key) for key in self.keys],
            compared,
            self.centred_cosines,
            [first[:, None] == second[None] for first, second in self.targets],
            title=f"Last position after attention {self.layer} (boxed: equal target)",
            height=360,
        )


def default_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """The paper's comparisons with the task's first three anchors; with two anchors, a pair and its reverse.

    >>> default_comparisons(AnchorTask())
    (((3, 3), (2, 2)), ((1, 2), (1, 3)))
    """
    a = list(task.anchors)
    rest = [a[0]] * (task.chain_length - 2)
    if len(a) < 3:
        return (((a[0], a[1], *rest), (a[1], a[0], *rest)),)
    named = {number: anchor for number, anchor in enumerate(a[:3], start=1)}
    (p, q), (r, s) = (
        [(*(named[anchor] for anchor in pair), *rest) for pair in both] for both in PAPER_COMPARISONS
    )
    return ((p, q), (r, s))


def unseen_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Every unseen pair with every pair trained on the composition: are inputs with equal targets similar?

    >>> unseen_comparisons(AnchorTask())[:2]
    (((3, 4), (1, 1)), ((3, 4), (1, 2)))
    """
    return tuple((unseen, seen) for unseen in task.ood_pairs for seen in task.composed_pairs)


def trained_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Every pair trained on the composition with every other such pair except its reverse.

    >>> trained_comparisons(AnchorTask())[:2]
    (((1, 1), (1, 2)), ((1, 1), (1, 3)))
    """
    composed = task.composed_pairs
    return tuple(
        (first, second) for first in composed for second in composed if second not in (first, first[::-1])
    )


def mirror_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Every unseen pair with its reverse, each two pairs once.

    >>> mirror_comparisons(AnchorTask())
    (((3, 4), (4, 3)),)
    """
    both = {tuple(sorted((pair, pair[::-1]))) for pair in task.ood_pairs if pair != pair[::-1]}
    return tuple((first, second) for first, second in sorted(both))


@takes_any
def fusion_similarity(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    comparisons: Sequence[tuple[Sequence[int], Sequence[int]]] | None = None,
    keys: Sequence[int] | None = None,
    key_position: int | None = None,
) -> FusionSimilarity:
    """Measure whether inputs with equal targets are similar at the last position after the last attention.

    The vector is the residual stream of the last position after the last attention layer (after its
    LayerNorm in `postnorm`), before the last MLP.

    Limitations: The probe does not detect a model whose last MLP combines separate codes for g and the second
    anchor, above all one-hot codes: before that MLP, inputs with equal targets are not similar. It does not
    show whether the model uses a similarity, since it ablates nothing.

    Args:
        model: any HookedTransformer; it is only read.
        task: gives the anchors, their functions and the sequence.
        comparisons: two anchor pairs each; (3,3) with (2,2) and (1,2) with (1,3) as in the paper.
            `unseen_comparisons(task)`, `trained_comparisons(task)` and `mirror_comparisons(task)` give other
            useful ones.
        keys: keys of both pairs; 30..40, or the middle eleven of the task's number tokens.
        key_position: position of the key token; 2 as in the papers.

    Returns:
        Cosines, and for each comparison the gap between equal and different targets: above 0 where key and
        anchors have been fused into what the target depends on.

    Raises:
        ValueError: a pair, key or position that the task does not have, activations that are not
            finite, or a model too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> fusion_similarity(build_model(ModelConfig(gamma=0.5)), AnchorTask()).cosines.shape
        (2, 11, 11)

    Source: arXiv 2405.05409, figure 4 (a) and (b).
    """
    check_inputs(model, task)
    chosen = middle_keys(task) if keys is None else whole_numbers("keys", keys)
    compared = default_comparisons(task) if comparisons is None else comparisons
    try:
        chains = [pair for first, second in compared for pair in (first, second)]
    except (TypeError, ValueError):
        chains = []
    if not chains:
        raise ValueError(f"comparisons must be pairs of anchor pairs, got {safe_repr(comparisons)}")
    chains = [tuple(whole_numbers("a compared pair", pair)) for pair in chains]
    different = list(dict.fromkeys(chains))
    rows = [chain for chain in different for _ in chosen]
    tokens = anchor_sequences(task, chosen * len(different), rows, key_position=key_position)
    last = model.cfg.n_layers - 1
    residual = torch.from_numpy(finite_rows(after_attention(model, tokens, last)))
    of_chain = dict(zip(different, residual.split(len(chosen)), strict=True))
    vectors = rearrange([of_chain[chain] for chain in chains], "(pair two) key m -> pair two key m", two=2)
    target = {chain: [task.inferential_target(key, chain) for key in chosen] for chain in different}
    targets = np.array([target[chain] for chain in chains]).reshape(len(compared), 2, len(chosen))
    same = targets[:, 0, :, None] == targets[:, 1, None]
    parts = [compare_groups(a, b, equal) for (a, b), equal in zip(vectors, same, strict=True)]
    gaps, centred = (np.array([part[i] for part in parts], dtype=float) for i in (2, 3))
    return FusionSimilarity(
        keys=np.array(chosen),
        comparisons=np.array(chains).reshape(len(compared), 2, task.chain_length),
        targets=targets,
        cosines=np.stack([part[0] for part in parts]),
        centred_cosines=np.stack([part[1] for part in parts]),
        gaps=gaps,
        centred_gaps=centred,
        gap=_mean(gaps),
        centred_gap=_mean(centred),
        nearest_same=_nearest_same(chains, np.stack([part[0] for part in parts]), same),
        layer=last,
    )


def _nearest_same(chains: list[tuple[int, ...]], cosines: np.ndarray, same: np.ndarray) -> float | None:
    """Share of the inputs of first pairs whose most similar input among their second pairs has their target.

    Args:
        chains: first and second pair of every comparison, alternating.
        cosines: [comparison, key, key].
        same: [comparison, key, key] Whether the targets are equal.
    """
    right: list[bool] = []
    for first in dict.fromkeys(chains[::2]):
        mine = [i for i, chain in enumerate(chains[::2]) if chain == first]
        others = np.concatenate(list(cosines[mine]), axis=1)  # [key, second pair and its key]
        equal = np.concatenate(list(same[mine]), axis=1)
        there = equal.any(axis=1)
        right += equal[np.arange(len(equal)), others.argmax(axis=1)][there].tolist()
    return float(np.mean(right)) if right else None


def _mean(values: np.ndarray) -> float | None:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else None
