"""Q-weight condensation: do the neurons of W_Q point in few directions?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import cosine_heatmap, styled
from anchorlens.probes.shared.checks import check_layer, check_model
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.linalg import cosine_matrix, greedy_groups, merged_heads, single

PARALLEL = 0.9
"""The |cosine| above which two neurons count as parallel."""


@probe_result
class QCondensation(ProbeResult):
    """The cosines between the columns (neurons) of W_Q, whose heads are merged."""

    probe = "q_condensation"
    readings = ("mean_abs_cosine", "parallel_share", "n_groups")
    cosines: np.ndarray
    """[neuron, neuron] The cosines, from -1 to 1, with the neurons in the order of the model."""
    order: np.ndarray
    """[neuron] The indices of the neurons, group by group. The plot shows `cosines[order][:, order]`."""
    group_sizes: np.ndarray
    """[group] The number of neurons in each group, in the order of `order`."""
    mean_abs_cosine: float
    """The mean |cosine| over pairs of different neurons, from 0 to 1. The mean is 1 if all neurons share one
    direction."""
    parallel_share: float
    """The proportion of pairs of neurons with |cosine| above 0.9, from 0 to 1."""
    n_groups: int
    """The number of groups that the greedy grouping finds. A small number means that W_Q has condensed. If
    the number equals the number of neurons, no two neurons are similar."""
    layer: int
    """The layer of W_Q, counted from 0."""
    threshold: float
    """The cosine above which a neuron joins a group."""

    def headline(self) -> str:
        """Return the mean |cosine| and the number of groups as text."""
        n = len(self.order)
        return f"mean |cosine| {self.mean_abs_cosine:.2f}, {n} neurons in {self.n_groups} groups"

    def plot(self) -> go.Figure:
        """Plot the matrix of cosines, with the neurons of each group next to each other."""
        figure = go.Figure(cosine_heatmap(self.cosines[np.ix_(self.order, self.order)]))
        axis = "neuron of W_Q, grouped"
        figure.update_xaxes(title=axis, constrain="domain")
        figure.update_yaxes(title=axis, constrain="domain", autorange="reversed", scaleanchor="x")
        return styled(figure, f"Condensation of W_Q, layer {self.layer}", height=540)


def condensation(
    w_q: Float[Tensor, "d_model neuron"], threshold: float
) -> tuple[np.ndarray, list[list[int]], float, float]:
    """Return the cosines and groups of the neurons, the mean |cosine| and the proportion of parallel pairs.

    The array of cosines is [neuron, neuron], with values from -1 to 1. The mean and the proportion are
    computed over pairs of different neurons. Two neurons are parallel if their |cosine| is above 0.9.
    """
    cosines = cosine_matrix(w_q.mT).cpu().double().numpy()
    off_diagonal = np.abs(cosines[~np.eye(len(cosines), dtype=bool)])
    mean, parallel = (float(x.mean()) if x.size else 0.0 for x in (off_diagonal, off_diagonal > PARALLEL))
    return cosines, greedy_groups(cosines, threshold), mean, parallel


@takes_any()
def q_condensation(model: HookedTransformer, *, layer: int = 0, threshold: float = 0.4) -> QCondensation:
    """Measure how far the neurons of W_Q have condensed into few directions.

    The probe merges the heads of W_Q into a matrix [d_model, n_heads * d_head]. A neuron is one column of
    this matrix. The input weights of a neuron are the d_model values of its column.

    Limitations: The probe does not show routes or answers, since the probe uses only weights. One-hot weights
    share no direction, whatever these weights compute.

    Args:
        model: a HookedTransformer, which the probe does not change.
        layer: the layer of W_Q, counted from 0. A negative layer is counted from the end.
        threshold: the cosine above which a neuron joins the group of another neuron, from -1 to 1.

    Returns:
        The mean |cosine| and the proportion of parallel pairs of neurons, from 0 to 1, and the groups of
        neurons. The mean |cosine| is 1 if all neurons share one direction.

    Raises:
        ValueError: If the layer does not exist.
        ValueError: If the threshold is not a cosine.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> q_condensation(build_model(ModelConfig(gamma=0.5)))
        QCondensation(mean |cosine| 0.07, 64 neurons in 64 groups)

    Source: The papers arXiv 2405.05409 and 2501.08537 show the condensation of W_Q.
    """
    check_model(model)
    layer = check_layer(model, layer)
    check_number("threshold", threshold, minimum=-1, maximum=1)
    w_q = single(merged_heads(model.blocks[layer].attn.W_Q.detach()))
    cosines, groups, mean, parallel = condensation(w_q, threshold)
    return QCondensation(
        cosines=cosines,
        order=np.concatenate([np.array(group) for group in groups]),
        group_sizes=np.array([len(group) for group in groups]),
        mean_abs_cosine=mean,
        parallel_share=parallel,
        n_groups=len(groups),
        layer=layer,
        threshold=float(threshold),
    )
