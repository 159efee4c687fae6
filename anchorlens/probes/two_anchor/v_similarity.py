"""V similarity: do the attention values at the first anchor encode g(x; a) for all x and a?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
from einops import rearrange

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.hooks import VALUE, read
from anchorlens.plots.of_probes import key_cosines
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, middle_keys
from anchorlens.probes.shared.checks import check_inputs, check_layer, whole_numbers
from anchorlens.probes.shared.contract import ProbeResult, mean_number, probe_result, takes_any
from anchorlens.probes.shared.linalg import compare_groups, saturated
from anchorlens.tasks.two_anchor.task import AnchorTask


@probe_result
class VSimilarity(ProbeResult):
    """The cosines of the attention values u(x; a) at the first anchor, for all measured keys and anchors."""

    probe = "v_similarity"
    readings = ("centred_gap", "gap")
    keys: np.ndarray
    """[key] The keys x."""
    anchors: np.ndarray
    """[anchor] The first anchors a."""
    results: np.ndarray
    """[anchor, key] The values g(x; a)."""
    pairs: np.ndarray
    """[pair, 2] The pairs of different anchors (a, a') that reach an equal g on these keys."""
    cosines: np.ndarray
    """[pair, key, key] The cosine of u(x; a) and u(x'; a'), from -1 to 1."""
    centred_cosines: np.ndarray
    """[pair, key, key] The cosines after subtracting the mean vector of the two anchors."""
    gaps: np.ndarray
    """[pair] The mean cosine of inputs with g(x; a) = g(x'; a') minus the mean of the other cosines, from -2
    to 2."""
    centred_gaps: np.ndarray
    """[pair] The gaps of the centred cosines, which do not depend on a common direction."""
    gap: float | None
    """The mean of `gaps`, or `None` if no two anchors reach an equal g."""
    centred_gap: float | None
    """The mean of `centred_gaps`. The mean is above 0 if the values encode g(x; a)."""
    layer: int
    """The layer of the values, counted from 0."""

    def headline(self) -> str:
        """Return the centred gap as text."""
        if self.centred_gap is None:
            return "no two anchors reach the same g(x; a) on these keys"
        why = saturated(self.centred_cosines[:1], "the values depend on the anchor, hardly on the key")
        return f"same g(x; a) minus different: {self.centred_gap:+.2f} centred, {self.gap:+.2f} raw{why}"

    def plot(self) -> go.Figure:
        """Plot the centred cosines of the first pair of anchors, with a box around each cell of equal g."""
        title = f"Values at the first anchor, layer {self.layer} (boxed: equal g)"
        if not len(self.pairs):
            title = f"Values at the first anchor: {self.headline()}"
        drawn, anchors = self.pairs[:1].tolist(), self.anchors.tolist()
        results = [[self.results[anchors.index(anchor)] for anchor in pair] for pair in drawn]
        compared = [(f"anchor {first}", f"anchor {second}") for first, second in drawn]
        return key_cosines(self.keys, compared, self.centred_cosines[:1], results, title=title, height=520)


@takes_any()
def v_similarity(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    keys: Sequence[int] | None = None,
    layer: int = 1,
    key_position: int | None = None,
) -> VSimilarity:
    """Measure whether the attention values at the first anchor depend on g(x; a) alone.

    The vector u(x; a) is `hook_v` of the layer at the position of the first anchor, with concatenated heads.
    Later tokens have no effect on u(x; a), since attention is causal.

    Limitations: The probe does not detect g(x; a) in other layers or at other positions. The probe does not
    show whether the model uses the values u(x; a).

    Args:
        model: a HookedTransformer of two layers or more, which the probe does not change.
        task: the task, which defines the anchors and their functions.
        keys: the keys x. Default: the keys 30 to 40, or the middle eleven number tokens of the task.
        layer: the layer of the values, from 1 on. In layer 0, the anchor has not attended to the key. A
            negative layer is counted from the end.
        key_position: the position of the key token. Default: 2, as in the papers.

    Returns:
        The cosines for each pair of different anchors, and the gap. The gap is the mean cosine for equal g
        minus the mean cosine for different g. The gap is above 0 if the model has computed the single-anchor
        result, as in Phase 3. The probe computes the gap of each pair separately. Two anchors with close
        shifts reach more equal values of g than two other anchors. The cosines of such anchors also differ
        from the cosines of other anchors.

    Raises:
        ValueError: If the model has one layer.
        ValueError: If a key or position is invalid for the task.
        ValueError: If the vocabulary or the context of the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> v_similarity(build_model(ModelConfig(gamma=0.8)), AnchorTask()).layer
        1

    Source: Figure 4 of arXiv 2405.05409 shows the similarity of the values of single anchors.
    """
    check_inputs(model, task)
    layer = check_layer(model, layer, minimum=1)
    chosen = middle_keys(task) if keys is None else whole_numbers("keys", keys)
    anchors = list(task.anchors)
    rows = [(anchor, *anchors[:1] * (task.chain_length - 1)) for anchor in anchors for _ in chosen]
    tokens = anchor_sequences(task, chosen * len(anchors), rows, key_position=key_position)
    first_anchor = int(np.flatnonzero(np.isin(tokens[0].numpy(), anchors))[0])
    values = read(model, tokens, [(layer, VALUE)], position=first_anchor)[layer, VALUE]
    vectors = rearrange(values.double(), "(anchor key) h d -> anchor key (h d)", anchor=len(anchors))
    results = np.array([[task.apply(anchor, key) for key in chosen] for anchor in anchors])
    pairs = np.array(list(combinations(range(len(anchors)), 2)))
    found = compare_groups(
        (vectors[a], vectors[b], results[a][:, None] == results[b][None]) for a, b in pairs
    )
    there = np.isfinite(found["gaps"])
    return VSimilarity(
        keys=np.array(chosen),
        anchors=np.array(anchors),
        results=results,
        pairs=np.array(anchors)[pairs[there]],
        **{name: values[there] for name, values in found.items()},
        gap=mean_number(found["gaps"]),
        centred_gap=mean_number(found["centred_gaps"]),
        layer=layer,
    )
