"""Masking the key token: whether the answers still separate anchor pairs, and a pair from its reverse."""

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
    """Answers with the key token masked, for every pair of different anchors."""

    probe: ClassVar[str] = "mask_key_token"
    readings: ClassVar[tuple[str, ...]] = ("mirror_merge", "silhouette_ordered", "silhouette_unordered")
    comparable_axes: ClassVar[bool] = False
    pairs: np.ndarray
    """[pair, chain_length] The anchors; each pair is followed by its reverse."""
    labels: np.ndarray
    """[sequence] Index of the pair of each sequence."""
    logits: np.ndarray
    """[sequence, d_vocab] Logits at the last position, with the key token masked."""
    points: np.ndarray | None
    """[sequence, 2] Their joint t-SNE; None where it was not requested."""
    silhouette_ordered: float | None
    """Mean silhouette of the logits with a label for each ordered pair, -1..1; 1 = a tight cluster each."""
    silhouette_unordered: float | None
    """The same with one label for a pair and its reverse."""
    mirror_merge: float | None
    """Mean distance of the centroids of reversed pairs over that of any two pairs: 0 = merged (commutative),
    about 1 = apart."""
    queries: Queries
    """The query positions whose attention to the key token is masked."""
    edge: Edge | None
    """The single edge that was masked instead, if there was one."""
    key_position: int
    """Position of the key token."""
    perplexity: float | None
    """Perplexity of the t-SNE; None without one."""
    seed: int
    """Seed of the keys, the noise tokens and the t-SNE."""
    noise: Noise = "independent"
    """Whether the noise is drawn for every sequence, or sequence i has the same noise for every pair."""

    def headline(self) -> str:
        """Mirror merge and both silhouettes."""
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
        """The joint t-SNE, a pair and its reverse in one colour."""
        title = f"Logits, {describe('key token', self.queries, self.edge)}"
        if self.points is None:
            raise ValueError("the picture needs the t-SNE, which this result lacks; give a perplexity")
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
    """Measure what the answers still say about the anchor pair when no position attends to the key token.

    Attention to the key token is set to zero after the softmax, without renormalising, for held-out
    keys with every pair of different anchors; every pair gets the same keys.

    Limitations: The probe does not work for a circuit that finds the anchors by the key before them, since
    without the key this circuit gives no answer to compare. It does not show the route by which clusters
    form.

    Args:
        model: any HookedTransformer whose attention hooks are alive.
        task: gives the anchors, the held-out keys and the sequence.
        queries: the queries that are masked: `all` positions, or the `last` alone.
        edge: (layer, head, query position, key position): only this edge is zeroed instead.
        n_sequences: number of sequences of each pair (50 in the papers).
        key_position: position of the key token; 2 as in the papers, or the nearest one with a held-out key.
        seen: only pairs of which both orders are trained, instead of all pairs of different anchors.
        perplexity: perplexity of the t-SNE; None for the numbers without the picture, which takes most of
            the time.
        noise: `independent`: noise is drawn for each sequence, as in the paper; `shared`: sequence i of every
            pair has the same noise. With shared noise, the effect of the noise cancels in the distances
            between pairs; if the anchors have little effect, the picture shows a cluster for each i.
        seed: seed of the keys, noise and t-SNE.

    Returns:
        Silhouettes of the logits (-1..1) with ordered and with unordered labels, the mirror merge, and
        a t-SNE. Phase 1: no clusters; Phase 2 without commutativity: one for each ordered pair; Phase 2 with
        commutativity, and Phase 3: one for each unordered pair, with mirror merge near 0.

    Raises:
        ValueError: a dead hook, an option out of range, or a model too small for the task.

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
        raise ValueError("this task trains no pair in both orders; leave seen out")
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
