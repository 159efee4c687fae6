"""The two halves of an audit's picture: when mappings are fit, and how late each group is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.audit.mappings import Mappings
from anchorlens.figures import BLUE, GREY, ORANGE

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from jaxtyping import Bool, Float, Int

MOST_GROUPS = 24
"""Groups that are drawn, the latest ones."""


def draw_fits(
    figure: go.Figure,
    moments: Sequence[int],
    steps: Float[np.ndarray, "seed mapping"],
    odd: Bool[np.ndarray, " mapping"],
    names: tuple[str, str],
    fences: Sequence[float | None],
) -> None:
    """Draw the share of mappings that is fit against the step, into the left subplot.

    Args:
        figure: it is changed.
        moments: steps, ascending.
        steps: fit step of each mapping in each model; infinite where never fit.
        odd: mappings with a line of their own.
        names: of those that are not odd, and of those that are.
        fences: dotted lines.
    """
    across = [0, *moments]
    for is_odd, colour in ((False, BLUE), (True, ORANGE)):
        rows = np.flatnonzero(odd == is_odd)
        name = f"{names[is_odd]} ({len(rows):,})"
        for k, each in enumerate(steps[:, rows] if len(rows) else []):
            share = [float((each <= step).mean()) for step in across]
            line = {"color": colour, "width": 1.5, "shape": "hv"}
            figure.add_scatter(
                x=across, y=share, mode="lines", line=line, name=name, legendgroup=name, showlegend=k == 0
            )
    for limit in fences:
        if limit is not None and limit <= across[-1]:
            line = {"color": GREY, "dash": "dot", "width": 1}
            figure.add_shape(type="line", x0=limit, x1=limit, y0=0, y1=1, line=line, row=1, col=1)
    figure.update_xaxes(title="step (dotted: fence)", range=[0, across[-1]], row=1, col=1)
    figure.update_yaxes(title="share of mappings fit", range=[-0.02, 1.02], row=1, col=1)


def draw_groups(
    figure: go.Figure,
    mappings: Mappings,
    late: Float[np.ndarray, " mapping"],
    odd: Bool[np.ndarray, " mapping"],
    order: Int[np.ndarray, " group"],
    medians: Float[np.ndarray, " group"],
) -> None:
    """Draw a row of dots for each group, one for each mapping, into the right subplot.

    Args:
        figure: it is changed.
        mappings: which mapping is in which group.
        late: lateness of each mapping.
        odd: mappings with a colour of their own, drawn above the others.
        order: groups, the first on top; those behind `MOST_GROUPS` are left out.
        medians: of each group, a black line.
    """
    shown = order[:MOST_GROUPS]
    place = np.full(len(order), -1.0)
    place[shown] = np.arange(len(shown))
    for is_odd, colour, size in ((False, BLUE, 3), (True, ORANGE, 4)):
        rows = np.flatnonzero((odd == is_odd) & (place[mappings.group_of] >= 0))
        spread = 0.5 * ((rows * 0.618) % 1 - 0.5)  # so that dots do not hide each other
        marker = {"color": colour, "size": size, "opacity": 0.7}
        heights = (place[mappings.group_of[rows]] + spread).tolist()
        figure.add_scatter(
            x=late[rows].tolist(), y=heights, mode="markers", marker=marker, showlegend=False, row=1, col=2
        )
    bar = {"symbol": "line-ns", "size": 12, "line": {"width": 2, "color": "black"}}
    x, y = medians[shown].tolist(), place[shown].tolist()
    figure.add_scatter(x=x, y=y, mode="markers", marker=bar, name="median of a group", row=1, col=2)
    labels = [", ".join(map(str, mappings.groups[group])) for group in shown.tolist()]
    ticks = {"tickvals": y, "ticktext": labels}
    name = "group" if len(shown) == len(order) else f"the latest {len(shown)} of {len(order):,} groups"
    figure.update_yaxes(title=name, range=[len(shown) - 0.4, -0.6], row=1, col=2, **ticks)
    figure.update_xaxes(title="lateness (mean rank, 1 = last)", range=[-0.02, 1.02], row=1, col=2)
