"""First-layer t-SNE: does the last position fuse the anchors in the first attention layer?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.hooks import after_attention
from anchorlens.plots.of_probes import cluster_figure
from anchorlens.probes.shared.anchor_sequences import mirrored_pairs
from anchorlens.probes.shared.checks import check_count, check_inputs
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.linalg import silhouette, tsne
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Trials
from anchorlens.tasks.two_anchor.task import AnchorTask


@probe_result
class FirstLayerTSNE(ProbeResult):
    """The last position's residual stream after the first attention layer, by anchor pair."""

    probe = "first_layer_tsne"
    readings = ("silhouette_unordered", "silhouette_ordered")
    comparable_axes = False
    pairs: np.ndarray
    """[pair, chain_length] The pairs of the sequences; each pair is followed by its reversed pair."""
    labels: np.ndarray
    """[sequence] The index of the pair of each sequence."""
    keys: np.ndarray
    """[sequence] The key token of each sequence."""
    vectors: np.ndarray
    """[sequence, d_model] The residual stream of the last position after the first attention layer."""
    points: np.ndarray
    """[sequence, 2] The t-SNE of the vectors."""
    silhouette_ordered: float | None
    """The mean silhouette of the vectors with a separate label for each ordered pair, from -1 to 1."""
    silhouette_unordered: float | None
    """The mean silhouette with one label for a pair and its reversed pair, from -1 to 1. The silhouette is
    above 0 if the first layer fuses the anchors."""
    perplexity: float
    """The perplexity of the t-SNE."""
    seed: int
    """The seed of the sequences and the t-SNE."""

    def headline(self) -> str:
        """Return both silhouettes as text."""
        if self.silhouette_unordered is None:
            return "too few sequences for a silhouette"
        return (
            f"silhouette {self.silhouette_unordered:+.2f} by unordered, "
            f"{self.silhouette_ordered:+.2f} by ordered anchor pair"
        )

    def plot(self) -> go.Figure:
        """Plot the t-SNE, with a pair and its reversed pair in one colour."""
        title = "Last position after attention 0, t-SNE"
        figure = cluster_figure(self.points, self.labels, self.pairs.tolist(), title)
        return figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)


@takes_any()
def first_layer_tsne(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    n_sequences: int = 1000,
    perplexity: float = 30,
    seed: int = 0,
) -> FirstLayerTSNE:
    """Measure how well the last position separates anchor pairs after the first attention layer.

    The probe draws sequences of pairs of different anchors, with random keys, positions and noise. The probe
    measures `hook_resid_mid` of layer 0 at the last position.

    Limitations: The probe does not detect a fusion of the anchors in a later layer. The probe does not show
    whether the answer uses the anchors.

    Args:
        model: a HookedTransformer, which the probe does not change.
        task: the task, which defines the sequences.
        n_sequences: the number of sequences, at least 1. The paper uses 10,000 sequences, for which the t-SNE
            takes about a minute.
        perplexity: the perplexity of the t-SNE, below `n_sequences`.
        seed: the seed of the sequences and the t-SNE.

    Returns:
        A t-SNE, and the silhouettes by ordered and by unordered pair, from -1 to 1. The silhouettes are
        clearly above 0 if the first layer brings the anchors to the last position, as in the symmetric
        solution. If the first layer does not bring the anchors to the last position, the silhouettes are
        about 0 or negative.

    Raises:
        ValueError: If an option is out of range.
        ValueError: If an activation is not finite.
        ValueError: If the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> first_layer_tsne(build_model(ModelConfig(gamma=0.5)), AnchorTask(), n_sequences=60).points.shape
        (60, 2)

    Source: Figure 3 (b) of arXiv 2405.05409 shows the t-SNE.
    """
    check_inputs(model, task)
    pairs = mirrored_pairs(task)
    check_count("n_sequences", n_sequences)
    rng = generator(seed, "probe")
    labels = rng.integers(0, len(pairs), n_sequences)
    keys, positions = rng.choice(task.keys, n_sequences), rng.choice(task.positions, n_sequences)
    trials = Trials(np.array(pairs)[labels], keys, positions)
    tokens = task.place(trials, task.noise(len(trials), rng)).tokens
    vectors = after_attention(model, tokens, 0).double().cpu().numpy()
    return FirstLayerTSNE(
        pairs=np.array(pairs),
        labels=labels,
        keys=keys,
        vectors=vectors,
        points=tsne(vectors, perplexity=perplexity, seed=seed),
        silhouette_ordered=silhouette(vectors, labels),
        silhouette_unordered=silhouette(vectors, labels // 2),
        perplexity=float(perplexity),
        seed=seed,
    )
