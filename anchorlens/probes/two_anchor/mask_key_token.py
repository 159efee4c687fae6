"""Masking the key token: do the answers still separate anchor pairs, and a pair from its reversed pair?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Int

from anchorlens.configuration import check_choice
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots.of_probes import cluster_figure
from anchorlens.probes.shared.anchor_sequences import checked_position, mirrored_pairs
from anchorlens.probes.shared.checks import check_count, check_inputs
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.interventions import Queries, masked_in_words, masked_logits
from anchorlens.probes.shared.linalg import mirror_merge, silhouette, tsne
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

Noise = Literal["independent", "shared"]
"""The kind of noise. `independent` noise is drawn for every sequence, and `shared` noise is the same in
sequence i of every pair."""


@probe_result
class MaskKeyToken(ProbeResult):
    """The logits with a masked key token, for every pair of different anchors."""

    probe = "mask_key_token"
    readings = ("mirror_merge", "silhouette_ordered", "silhouette_unordered")
    comparable_axes = False
    pairs: np.ndarray
    """[pair, chain_length] The anchors of each pair. Each pair is followed by its reversed pair."""
    labels: np.ndarray
    """[sequence] The index of the pair of each sequence."""
    logits: np.ndarray
    """[sequence, d_vocab] The logits at the last position, with a masked key token."""
    points: np.ndarray | None
    """[sequence, 2] The joint t-SNE of the logits, or `None` if you did not request the t-SNE."""
    silhouette_ordered: float | None
    """The mean silhouette of the logits with a separate label for each ordered pair, from -1 to 1. The
    silhouette is 1 if each pair has a tight cluster."""
    silhouette_unordered: float | None
    """The mean silhouette with one label for a pair and its reversed pair, from -1 to 1."""
    mirror_merge: float | None
    """The mean distance between the centroids of a pair and its reversed pair, divided by the mean distance
    between any two centroids. The ratio is 0 if reversed pairs are merged (commutative), and about 1 if they
    are apart."""
    queries: Queries
    """The query positions whose attention to the key token is masked."""
    key_position: int
    """The position of the key token."""
    perplexity: float | None
    """The perplexity of the t-SNE, or `None` without a t-SNE."""
    seed: int
    """The seed of the keys, the noise tokens and the t-SNE."""
    noise: Noise = "independent"
    """The kind of noise. `independent` noise is drawn for every sequence, and `shared` noise is the same in
    sequence i of every pair."""

    def headline(self) -> str:
        """Return `mirror_merge` and both silhouettes as text."""
        if self.mirror_merge is None or self.silhouette_ordered is None:
            return "all answers are the same without the key token"
        n, unordered = len(self.pairs), self.silhouette_unordered
        second = "" if unordered is None else f", {unordered:+.2f} for {n // 2} unordered"
        return (
            f"mirrored pairs at {self.mirror_merge:.2f} of the mean distance; silhouette "
            f"{self.silhouette_ordered:+.2f} for {n} ordered{second} pairs"
        )

    def plot(self) -> go.Figure:
        """Plot the joint t-SNE, with a pair and its reversed pair in one colour."""
        title = f"Logits, {masked_in_words('key token', self.queries)}"
        if self.points is None:
            raise ValueError("the result must have a t-SNE for its picture, got none. Give a perplexity")
        return cluster_figure(self.points, self.labels, self.pairs.tolist(), title)


@takes_any()
def mask_key_token(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    queries: Queries = "all",
    n_sequences: int = 50,
    key_position: int | None = None,
    seen: bool = False,
    perplexity: float | None = 12,
    noise: Noise = "independent",
    seed: int = 0,
) -> MaskKeyToken:
    """Measure the separation of the anchor pairs in the answers when no position attends to the key token.

    The probe sets the attention to the key token to zero after the softmax, without renormalising. The inputs
    combine held-out keys with every pair of different anchors. The inputs of every pair have the same keys.

    Limitations: The probe does not work for a circuit that needs the key to find the anchors. Without the
    key, a circuit of this kind gives no answer to compare. The probe does not show the route by which
    clusters form.

    Args:
        model: a HookedTransformer whose attention hooks can be edited.
        task: the task, which defines the anchors, the held-out keys and the sequence.
        queries: the query positions whose attention is masked, `all` or only the `last`.
        n_sequences: the number of sequences of each pair. Default: 50, as in the papers.
        key_position: the position of the key token. Default: 2, as in the papers, or the nearest position
            with a held-out key.
        seen: whether to use only pairs whose two orders are both trained, instead of all pairs of different
            anchors.
        perplexity: the perplexity of the t-SNE. With `None`, the probe omits the t-SNE. The t-SNE takes most
            of the time.
        noise: the kind of noise. With `independent`, the probe draws noise for each sequence, as in the
            paper. With `shared`, sequence i of every pair has the same noise. The effect of this noise
            cancels in the distances between pairs. If the noise is shared and the anchors have little effect,
            the plot shows a cluster for each sequence index i.
        seed: the seed of the keys, noise and t-SNE.

    Returns:
        The silhouettes of the logits by ordered and by unordered pair (from -1 to 1), the reading
        `mirror_merge`, and a t-SNE. Models in Phase 1 have no clusters. Models in Phase 2 without
        commutativity have a cluster for each ordered pair. Models in Phase 2 with commutativity and in Phase
        3 have a cluster for each unordered pair, and a `mirror_merge` near 0.

    Raises:
        ValueError: If a hook cannot be edited.
        ValueError: If an option is out of range.
        ValueError: If the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> result = mask_key_token(build_model(ModelConfig(gamma=0.5)), AnchorTask(), n_sequences=5)
        >>> result.logits.shape
        (60, 201)

    Source: The probe follows the attention masking of arXiv 2501.08537.
    """
    check_inputs(model, task)
    check_choice("noise", noise, get_args(Noise))
    pairs = mirrored_pairs(task, seen=seen)
    if not pairs:
        raise ValueError("the task must train at least 1 pair in both orders, got 0. Omit the argument seen")
    usual = checked_position(task, key_position)
    there = [at for at in task.positions.tolist() if len(held_out_keys(task, at))]
    position = usual if key_position is not None else min(there, key=lambda at: (abs(at - usual), at))
    batch = held_out_sequences(task, pairs, n_sequences, position, noise, seed)
    logits = masked_logits(model, batch.tokens, [position], queries)
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
        key_position=position,
        perplexity=None if perplexity is None else float(perplexity),
        seed=seed,
        noise=noise,
    )


def held_out_keys(task: AnchorTask, position: int) -> Int[np.ndarray, " key"]:
    """Return the keys that are never trained at a position.

    These are the keys x with x mod m = i mod m, where i is the position and m is the modulus of the task.
    """
    return task.keys[(task.keys - position) % task.modulus == 0]


def held_out_sequences(
    task: AnchorTask, pairs: Sequence[Pair], n_sequences: int, position: int, noise: Noise, seed: int
) -> AnchorBatch:
    """Draw sequences with random noise tokens, and with random keys that are never trained at the position.

    The sequences of every pair have the same keys.

    Raises:
        ValueError: If the position or the number of sequences is invalid for the task.
    """
    check_count("n_sequences", n_sequences)
    rng = generator(seed, "probe")
    allowed = held_out_keys(task, position)
    if not len(allowed):
        raise ValueError(
            f"key_position must be a position with held-out keys, got {position}. Use another position"
        )
    drawn = allowed[rng.integers(0, len(allowed), n_sequences)]
    if noise == "shared":
        around = np.tile(task.noise(n_sequences, rng), (len(pairs), 1))
    else:
        around = task.noise(len(pairs) * n_sequences, rng)
    trials = task.product([tuple(pair) for pair in pairs], drawn, np.full(n_sequences, position))
    return task.place(trials, around)
