"""Fusion similarity: are inputs with equal targets similar at the last position?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from einops import rearrange

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.hooks import after_attention
from anchorlens.plots.of_probes import key_cosines
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, middle_keys
from anchorlens.probes.shared.checks import check_inputs, whole_numbers
from anchorlens.probes.shared.contract import ProbeResult, mean_number, probe_result, takes_any
from anchorlens.probes.shared.linalg import compare_groups, saturated
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr

PAPER_COMPARISONS = (((3, 3), (2, 2)), ((1, 2), (1, 3)))
"""The anchor pairs that figure 4 of arXiv 2405.05409 compares because these pairs reach equal targets."""


@probe_result
class FusionSimilarity(ProbeResult):
    """The cosines of residual streams at the last position after the last attention layer."""

    probe = "fusion_similarity"
    readings = ("centred_gap", "gap")
    keys: np.ndarray
    """[key] The keys that both pairs use. The key is x with the first pair, and y with the second pair."""
    comparisons: np.ndarray
    """[comparison, 2, chain_length] The two anchor pairs of each comparison."""
    targets: np.ndarray
    """[comparison, 2, key] The inferential targets of the two pairs."""
    cosines: np.ndarray
    """[comparison, key, key] The cosine of (x; first pair) and (y; second pair), from -1 to 1."""
    centred_cosines: np.ndarray
    """[comparison, key, key] The cosines after subtracting the mean vector of both pairs."""
    gaps: np.ndarray
    """[comparison] The mean cosine of inputs with equal targets minus the mean cosine of inputs with
    different targets. The gap is NaN if all targets are equal or all targets are different."""
    centred_gaps: np.ndarray
    """[comparison] The gaps of the centred cosines."""
    gap: float | None
    """The mean of `gaps`, or `None` if all gaps are NaN."""
    centred_gap: float | None
    """The mean of `centred_gaps`. The mean is above 0 if inputs with equal targets are similar."""
    layer: int
    """The last layer, counted from 0."""

    def headline(self) -> str:
        """Return the centred gap as text."""
        if self.centred_gap is None:
            return "the compared pairs reach no equal target on these keys"
        why = saturated(self.centred_cosines, "the activations depend on the anchors, hardly on the key")
        return f"equal target minus different: {self.centred_gap:+.2f} centred, {self.gap:+.2f} raw{why}"

    def plot(self) -> go.Figure:
        """Plot the centred cosines of each comparison, with a box around each cell of equal targets."""
        compared = [[",".join(map(str, pair)) for pair in both] for both in self.comparisons.tolist()]
        title = f"Last position after attention {self.layer} (boxed: equal target)"
        return key_cosines(self.keys, compared, self.centred_cosines, self.targets, title=title, height=360)


def default_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return the paper's comparisons, applied to the first three anchors of the task.

    If the task has two anchors, the only comparison is a pair with its reversed pair.

    >>> default_comparisons(AnchorTask())
    (((3, 3), (2, 2)), ((1, 2), (1, 3)))
    """
    a = list(task.anchors)
    rest = [a[0]] * (task.chain_length - 2)
    if len(a) < 3:
        return (((a[0], a[1], *rest), (a[1], a[0], *rest)),)

    def in_task(pair: tuple[int, int]) -> tuple[int, ...]:
        return (*(a[number - 1] for number in pair), *rest)

    return tuple((in_task(first), in_task(second)) for first, second in PAPER_COMPARISONS)


def mirror_comparisons(task: AnchorTask) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return the comparison of every unseen pair with its reversed pair, without repetition.

    >>> mirror_comparisons(AnchorTask())
    (((3, 4), (4, 3)),)
    """
    both = {tuple(sorted((pair, pair[::-1]))) for pair in task.ood_pairs if pair != pair[::-1]}
    return tuple((first, second) for first, second in sorted(both))


@takes_any()
def fusion_similarity(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    comparisons: Sequence[tuple[Sequence[int], Sequence[int]]] | None = None,
    keys: Sequence[int] | None = None,
    key_position: int | None = None,
) -> FusionSimilarity:
    """Measure whether inputs with equal targets are similar at the last position after the last attention.

    The probe measures the residual stream of the last position between the last attention layer and the last
    MLP. In a model of the variant `postnorm`, the probe measures the residual stream after the LayerNorm of
    the last attention layer.

    Limitations: The probe does not detect composition by a last MLP that combines separate codes for g(x; a1)
    and the second anchor, such as one-hot codes. In a model of this kind, inputs with equal targets are
    not yet similar before the last MLP. The probe does not show whether the model uses the similarity, since
    the probe ablates nothing.

    Args:
        model: a HookedTransformer, which the probe does not change.
        task: the task, which defines the anchors, their functions and the sequence.
        comparisons: the compared anchor pairs. Default: (3,3) with (2,2), and (1,2) with (1,3), as in the
            paper. `mirror_comparisons(task)` returns other useful comparisons.
        keys: the keys of both pairs. Default: the keys 30 to 40, or the middle eleven number tokens of the
            task.
        key_position: the position of the key token. Default: 2, as in the papers.

    Returns:
        The cosines of each comparison, and the gap. The gap is the mean cosine for equal targets minus the
        mean cosine for different targets. The gap is above 0 if the model has fused key and anchors into a
        value that determines the target.

    Raises:
        ValueError: If a pair, key or position is invalid for the task.
        ValueError: If the model is too small for the task.
        ValueError: If an activation is not finite.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> fusion_similarity(build_model(ModelConfig(gamma=0.5)), AnchorTask()).cosines.shape
        (2, 11, 11)

    Source: Figures 4 (a) and (b) of arXiv 2405.05409 show the cosines.
    """
    check_inputs(model, task)
    chosen = middle_keys(task) if keys is None else whole_numbers("keys", keys)
    compared = default_comparisons(task) if comparisons is None else comparisons
    try:
        chains = [pair for first, second in compared for pair in (first, second)]
    except (TypeError, ValueError):
        chains = []
    if not chains:
        raise ValueError(
            "comparisons must be pairs of anchor pairs, for example [((1, 2), (1, 3))], got "
            f"{safe_repr(comparisons)}. Correct comparisons"
        )
    chains = [tuple(whole_numbers("a compared pair", pair)) for pair in chains]
    different = list(dict.fromkeys(chains))
    rows = [chain for chain in different for _ in chosen]
    tokens = anchor_sequences(task, chosen * len(different), rows, key_position=key_position)
    last = model.cfg.n_layers - 1
    residual = after_attention(model, tokens, last).double().cpu()
    of_chain = dict(zip(different, residual.split(len(chosen)), strict=True))
    vectors = rearrange([of_chain[chain] for chain in chains], "(pair two) key m -> pair two key m", two=2)
    target = {chain: [task.inferential_target(key, chain) for key in chosen] for chain in different}
    targets = np.array([target[chain] for chain in chains]).reshape(len(compared), 2, len(chosen))
    same = targets[:, 0, :, None] == targets[:, 1, None]
    both = ((a, b, equal) for (a, b), equal in zip(vectors, same, strict=True))
    found = compare_groups(both)
    return FusionSimilarity(
        keys=np.array(chosen),
        comparisons=np.array(chains).reshape(len(compared), 2, task.chain_length),
        targets=targets,
        **found,
        gap=mean_number(found["gaps"]),
        centred_gap=mean_number(found["centred_gaps"]),
        layer=last,
    )
