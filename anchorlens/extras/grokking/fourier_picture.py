"""The picture of Fourier measures: shares of frequencies, three losses, and the correct answer's logit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from anchorlens.plots import BLUE, GREY, ORANGE, styled

SMALLEST_LOSS = 1e-16
"""The height of a bar whose loss is smaller: float64 has no smaller difference from a probability of 1."""


def fourier_figure(
    title: str,
    shares: Float[np.ndarray, " frequency"],
    keys: np.ndarray,
    embedding: Float[np.ndarray, " frequency"],
    losses: Mapping[str, float],
    right: Float[np.ndarray, "difference sum"],
    axes: tuple[str, str],
) -> go.Figure:
    """Draw bars of variance and a line for the embedding, bars of losses, and a map of logits.

    Args:
        title: the title of the figure.
        shares: the fraction of the logits' variance at the frequencies 1, 2, and so on.
        keys: the frequencies whose bars are coloured.
        embedding: the fraction of the embedding's power at each frequency.
        losses: a map from the name of a bar to its loss in nats.
        right: the logit of the correct answer. A column may stand for two neighbouring sums.
        axes: the names of the sums and the differences.
    """
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        subplot_titles=("", "loss", "logit of the right answer"),
        vertical_spacing=0.22,
        horizontal_spacing=0.15,
        row_heights=[0.42, 0.58],
        column_widths=[0.42, 0.58],
    )
    frequencies = np.arange(1, len(shares) + 1)
    is_key = np.isin(frequencies, keys)
    for name, colour, chosen in (("the key frequencies", BLUE, is_key), ("the others", GREY, ~is_key)):
        figure.add_bar(
            x=frequencies[chosen], y=shares[chosen], marker_color=colour, name=name, width=0.8, row=1, col=1
        )
    line = {"color": ORANGE, "width": 1.5}
    figure.add_scatter(x=frequencies, y=embedding, mode="lines", line=line, name="embedding", row=1, col=1)
    heights = np.maximum([*losses.values()], SMALLEST_LOSS)
    powers = np.log10(heights)
    figure.add_bar(
        x=list(losses),
        y=heights,
        text=[f"{value:.2g}" for value in losses.values()],
        textposition="outside",
        marker_color=[GREY, BLUE, ORANGE],
        showlegend=False,
        row=2,
        col=1,
    )
    n, n_columns = right.shape
    figure.add_heatmap(
        z=right,
        x=np.arange(n_columns) * (n // n_columns),
        y=np.arange(n),
        zmin=min(right.min(), right.max() - 0.01 * abs(right.max())),  # rounding has no colours
        zmax=right.max(),
        colorscale="Blues",
        colorbar={"len": 0.5, "y": 0.22, "thickness": 12},
        row=2,
        col=2,
    )
    low, high = np.floor(powers.min() - 0.2), powers.max() + 0.08 * (powers.max() - powers.min() + 1) + 0.2
    figure.update_xaxes(title="frequency", row=1, col=1)
    figure.update_yaxes(title="share", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(tickangle=0, tickfont_size=10, row=2, col=1)
    figure.update_yaxes(
        title="nats",
        type="log",
        range=[low, high],
        dtick=float(np.ceil((high - low) / 6)),
        exponentformat="power",
        row=2,
        col=1,
    )
    figure.update_xaxes(title=axes[0], row=2, col=2)
    figure.update_yaxes(title=axes[1], row=2, col=2)
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    picture = styled(figure, title, height=620)
    picture.update_layout(barmode="overlay", legend=legend, margin_t=80)
    return picture
