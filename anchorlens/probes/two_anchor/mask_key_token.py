"""Masking the key token: do the answers still separate anchor pairs, and a pair from its reversed pair?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from anchorlens.configuration import check_choice
from anchorlens.probes.plots.clusters import cluster_figure
from anchorlens.probes.shared.anchor_sequences import (
    Noise,
    checked_position,
    held_out_position,
    random_sequences,
)
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import check_inputs
from anchorlens.probes.shared.clusters import mirror_merge, mirrored_pairs, silhouette, tsne
from anchorlens.probes.shared.masking import Edge, Queries, checked_edge, describe, masked_logits
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer


@probe_result
class MaskKeyToken(ProbeResult):
    """The answers with the key token masked, for every pair of different anchors."""

    probe: ClassVar[str] = "mask_key_token"
    readings: ClassVar[tuple[str, ...]] = ("mirror_merge", "silhouette_ordered", "silhouette_unordered")
    comparable_axes: ClassVar[bool] = False
    pairs: np.ndarray
    """[pair, chain_length] The anchors; each pair is followed by its reversed pair."""
    labels: np.ndarray
    """[sequence] The index of the pair of each sequence."""
    logits: np.ndarray
    """[sequence, d_vocab] The logits at the last position, with the key token masked."""
    points: np.ndarray | None
    """[sequence, 2] The joint t-SNE of the logits; `None` if not requested."""
    silhouette_ordered: float | None
    """The mean silhouette of the logits with a label for each ordered pair, -1..1; 1 = a tight cluster for
    each pair."""
    silhouette_unordered: float | None
    """The mean silhouette with one label for a pair and its reversed pair, -1..1."""
    mirror_merge: float | None
    """The mean distance of the centroids of reversed pairs, divided by the mean distance of any two
    pairs. 0 = merged (commutative), about 1 = apart."""
    queries: Queries
    """The query positions whose attention to the key token is masked."""
    edge: Edge | None
    """The single edge that was masked instead; `None` if no edge was given."""
    key_position: int
    """The position of the key token."""
    perplexity: float | None
    """The perplexity of the t-SNE; `None` without a t-SNE."""
    seed: int
    """The seed of the keys, the noise tokens and the t-SNE."""
    noise: Noise = "independent"
    """Whether noise is drawn for every sequence, or is the same in sequence i of every pair."""

    def headline(self) -> str:
        """Return the mirror merge and both silhouettes as text."""
        if self.mirror_merge is None or self.silhouette_ordered is None:
            return "all answers are the same without the key token"
        n = len(self.pairs)
        return (
            f"mirrored pairs at {self.mirror_merge:.2f} of the mean distance; silhouette "
            f"{self.silhouette_ordered:+.2f} for {n} ordered"
            + (
                ""
                if self.silhouette_unordered is None
                else f", {self.silhouette_unordered:+.2f} for {n // 2} unordered"
            )
            + " pairs"
        )

    def plot(self) -> go.Figure:
        """Plot the joint t-SNE, with a pair and its reversed pair in one colour."""
        title = f"Logits, {describe('key token', self.queries, self.edge)}"
        if self.points is None:
            raise ValueError("the result must have a t-SNE for its picture, got none. Give a perplexity")
        return cluster_figure(self.points, self.labels, self.pairs.tolist(), title)


@takes_any
def mask_key_token(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    queries: Queries = "all",
    edge: Sequence[int] | None = None,
    n_sequences: int = 50,
    key_position: int | None = None,
    seen: bool = False,
    perplexity: float | None = 12,
    noise: Noise = "independent",
    seed: int = 0,
) -> MaskKeyToken:
    """Measure the separation of the anchor pairs in the answers when no position attends to the key token.

    Attention to the key token is set to zero after the softmax, without renormalising. The inputs have
    held-out keys with every pair of different anchors; every pair has the same keys.

    Limitations: The probe does not work for a circuit that finds the anchors by the key before them. Without
    the key, this circuit gives no answer to compare. The probe does not show the route by which clusters
    form.

    Args:
        model: a HookedTransformer whose attention hooks are alive.
        task: the task, which defines the anchors, the held-out keys and the sequence.
        queries: the masked queries: `all` positions, or the `last` alone.
        edge: a single edge to zero instead: (layer, head, query position, key position).
        n_sequences: the number of sequences of each pair (50 in the papers).
        key_position: the position of the key token. Default: 2, as in the papers, or the nearest position
            with a held-out key.
        seen: whether to use only pairs with both orders trained, instead of all pairs of different anchors.
        perplexity: the perplexity of the t-SNE; `None` returns the readings without the picture, which takes
            most of the time.
        noise: `independent`: noise is drawn for each sequence, as in the paper; `shared`: sequence i of every
            pair has the same noise. With shared noise, the effect of the noise cancels in the distances
            between pairs. If the anchors have little effect, the picture shows a cluster for each i.
        seed: the seed of the keys, noise and t-SNE.

    Returns:
        The silhouettes of the logits (-1..1) with ordered and with unordered labels, the mirror merge, and a
        t-SNE. Phase 1 has no clusters, and Phase 2 without commutativity has a cluster for each ordered pair.
        Phase 2 with commutativity and Phase 3 have a cluster for each unordered pair, with a mirror merge
        near 0.

    Raises:
        ValueError: If a hook is dead, an option is out of range, or the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> result = mask_key_token(build_model(ModelConfig(gamma=0.5)), AnchorTask(), n_sequences=5)
        >>> result.logits.shape
        (60, 201)

    Source: attention masking of arXiv 2501.08537.
    """
    check_inputs(model, task)
    check_choice("noise", noise, get_args(Noise))
    single = checked_edge(edge)
    pairs = mirrored_pairs(task, seen=seen)
    if not pairs:
        raise ValueError("the task must train a pair in both orders, got a task without one. Leave seen out")
    position = held_out_position(task) if key_position is None else checked_position(task, key_position)
    drawn: dict[str, Any] = {"key_position": position, "keys": "held out", "noise": noise, "seed": seed}
    batch = random_sequences(task, pairs, n_sequences, **drawn)
    logits = masked_logits(model, batch.tokens, [position], queries, single)
    labels = np.repeat(np.arange(len(pairs)), n_sequences)
    mirror = np.arange(len(pairs)) ^ 1  # each pair is followed by its mirror
    return MaskKeyToken(
        pairs=np.array(pairs),
        labels=labels,
        logits=logits,
        points=None if perplexity is None else tsne(logits, perplexity=perplexity, seed=seed),
        silhouette_ordered=silhouette(logits, labels),
        silhouette_unordered=silhouette(logits, labels // 2),
        mirror_merge=mirror_merge(logits, labels, mirror),
        queries=queries,
        edge=single,
        key_position=position,
        perplexity=None if perplexity is None else float(perplexity),
        seed=seed,
        noise=noise,
    )
