"""The stable rank of every weight matrix, which is the number of directions that the matrix uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import BLUE, ORANGE, styled
from anchorlens.probes.shared.checks import check_finite, check_layer, check_model
from anchorlens.probes.shared.contract import ProbeResult, number, probe_result, takes_any
from anchorlens.probes.shared.linalg import gaussian_stable_rank, short_name, stable_rank_of, weight_matrices

FIRST = "blocks.0.attn.W_Q"
"""The name of the matrix whose stable rank is the reading."""


@probe_result
class StableRank(ProbeResult):
    """The stable rank of every weight matrix, and of a Gaussian matrix of the same shape."""

    probe = "stable_rank"
    readings = ("w_q", "w_q_normalized")
    names: tuple[str, ...]
    """The names of the parameters. The probe merges heads, and flattens convolutions to matrices."""
    values: np.ndarray
    """[matrix] The stable rank ||W||_F^2 / ||W||_2^2. The rank goes from 1 (one direction) to the smaller
    side of the matrix, and is NaN for a zero matrix."""
    gaussian: np.ndarray
    """[matrix] The stable rank of a large Gaussian matrix of the same shape."""
    w_q: float | None
    """The stable rank of the first layer's W_Q, as in arXiv 2501.08537. The value is `None` if the network
    has no W_Q, or if W_Q is zero."""
    w_q_normalized: float | None
    """The value of `w_q` divided by its Gaussian value. The ratio is about 1 at a random start, and near 0 if
    W_Q has condensed."""

    @property
    def normalized(self) -> np.ndarray:
        """[matrix] The ratio of `values` to `gaussian`."""
        return self.values / self.gaussian

    def headline(self) -> str:
        """Return the stable rank of the first layer's W_Q as text.

        Without W_Q, the text contains the mean ratio of the stable ranks to the values of Gaussian matrices.
        """
        if self.w_q is None and FIRST in self.names:
            return "W_Q of layer 0 is zero, and a zero matrix has no stable rank"
        if self.w_q is None:
            normalized = self.normalized[np.isfinite(self.normalized)]
            mean = f"{normalized.mean():.2f} of a Gaussian's" if len(normalized) else "all are zero"
            return f"mean over {len(normalized)} matrices: {mean}"
        return f"W_Q of layer 0: {self.w_q:.2f}, {self.w_q_normalized:.2f} of a Gaussian's"

    def plot(self) -> go.Figure:
        """Plot the stable rank of each matrix as a bar, and of a Gaussian matrix as a mark."""
        names = [short_name(name) for name in self.names]
        figure = go.Figure()
        figure.add_bar(y=names, x=self.values, orientation="h", name="stable rank", marker_color=BLUE)
        figure.add_scatter(
            y=names,
            x=self.gaussian,
            mode="markers",
            name="Gaussian of that shape",
            marker={"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": ORANGE}},
        )
        figure.update_yaxes(autorange="reversed")
        figure.update_xaxes(title="stable rank ||W||_F² / ||W||_2²", rangemode="tozero")
        figure.update_layout(legend={"orientation": "h", "y": -60 / (24 * len(names)), "yanchor": "top"})
        return styled(figure, "Stable rank", height=190 + 24 * len(names))


@takes_any()
def stable_rank(model: HookedTransformer) -> StableRank:
    """Measure the stable rank ||W||_F^2 / ||W||_2^2 of every weight matrix.

    Limitations: The probe does not show routes or answers. The probe counts the directions of a matrix, and
    does not show the function of a direction.

    Args:
        model: a HookedTransformer, the U-Net of Concept Graphs, or a module whose method `weight_matrices`
            returns its matrices by name. The probe merges the heads of a HookedTransformer. The probe
            flattens each convolution kernel of the U-Net to a matrix from inputs to outputs. The probe does
            not change the model.

    Raises:
        ValueError: If the object is not a model.
        ValueError: If the model has no layers.
        ValueError: If a weight is not finite.

    Returns:
        The stable rank of each matrix, from 1 (one direction, condensed) to the smaller side of the matrix.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> stable_rank(build_model(ModelConfig(gamma=0.5)))
        StableRank(W_Q of layer 0: 22.27, 1.01 of a Gaussian's)

    Source: The stable rank is the complexity measure of arXiv 2501.08537. A large Gaussian m x n matrix has
    the stable rank mn / (sqrt(m) + sqrt(n))^2.
    """
    if isinstance(own_matrices := getattr(model, "weight_matrices", None), Callable):
        check_finite(model)
        matrices = own_matrices()
    else:
        check_model(model)
        check_layer(model, 0)
        matrices = weight_matrices(model)
    values = np.array([stable_rank_of(matrix) for matrix in matrices.values()])
    gaussian = np.array([gaussian_stable_rank(*matrix.shape) for matrix in matrices.values()])
    names = tuple(matrices)
    w_q = number(values[names.index(FIRST)]) if FIRST in names else None
    if w_q is None:
        return StableRank(names, values, gaussian, None, None)
    return StableRank(names, values, gaussian, w_q, w_q / float(gaussian[names.index(FIRST)]))
