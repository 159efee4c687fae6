"""The figure of an audit: the steps at which mappings are fit, and the lateness of each group."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import views
from anchorlens.extras.audit.result import Audit
from anchorlens.plots import BLUE, ORANGE, plotly_text, styled

MOST_GROUPS = 24
"""The largest number of groups drawn; the latest groups are drawn."""


@views.figure.register(Audit)
def audit_figure(audit: Audit) -> go.Figure:
    """Draw the fraction of mappings that each model has fit against the step, and the lateness of each group.

    Mappings that violate the rule are vermilion. If the violations are unknown, flagged mappings are
    vermilion.
    """
    data = audit.mappings
    odd, names = audit.flagged, ("not flagged", "flagged")
    if data.violates is not None:
        odd, names = data.violates, ("obey the rule", "violate it")
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.14)
    _draw_fits(figure, audit, odd, names)
    _draw_groups(figure, audit, odd)
    n_shown = min(MOST_GROUPS, len(data.groups))
    title = f"{plotly_text(data.name)}: which mappings are fit late"
    drawn = styled(figure, title, width=900, height=max(440, 180 + 18 * n_shown))
    legend = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 0, "yref": "container"}
    drawn.update_layout(legend={**legend, "yanchor": "bottom"}, margin_b=90)
    return drawn


def _draw_fits(figure: go.Figure, audit: Audit, odd: np.ndarray, names: tuple[str, str]) -> None:
    """Draw the fraction of fit mappings against the step on the left, with each model's fence dotted."""
    across = [0, *audit.evaluation_steps]
    for is_odd, colour in ((False, BLUE), (True, ORANGE)):
        rows = np.flatnonzero(odd == is_odd)
        name = f"{names[is_odd]} ({len(rows):,})"
        for k, steps in enumerate(audit.fit_steps[:, rows] if len(rows) else []):
            share = [float((steps <= step).mean()) for step in across]
            line = {"color": colour, "width": 1.5, "shape": "hv"}
            figure.add_scatter(
                x=across, y=share, mode="lines", line=line, name=name, legendgroup=name, showlegend=k == 0
            )
    for limit in audit.fences:
        if limit is not None and limit <= across[-1]:
            line = {"color": "black", "dash": "dot", "width": 1.2}
            figure.add_shape(type="line", x0=limit, x1=limit, y0=0, y1=1, line=line, row=1, col=1)
    figure.update_xaxes(title="step (dotted: fence)", range=[0, across[-1]], row=1, col=1)
    figure.update_yaxes(title="fraction of mappings fit", range=[-0.02, 1.02], row=1, col=1)


def _draw_groups(figure: go.Figure, audit: Audit, odd: np.ndarray) -> None:
    """Draw a row of dots for each group on the right, one for each mapping, and their median in black."""
    data, order = audit.mappings, audit.group_order
    shown = order[:MOST_GROUPS]
    place = np.full(len(order), -1.0)
    place[shown] = np.arange(len(shown))
    for is_odd, colour, size in ((False, BLUE, 3), (True, ORANGE, 4)):
        rows = np.flatnonzero((odd == is_odd) & (place[data.group_of] >= 0))
        spread = 0.5 * ((rows * 0.618) % 1 - 0.5)  # jitter, so that dots do not hide each other
        marker = {"color": colour, "size": size, "opacity": 0.7}
        x, y = audit.lateness[rows].tolist(), (place[data.group_of[rows]] + spread).tolist()
        figure.add_scatter(x=x, y=y, mode="markers", marker=marker, showlegend=False, row=1, col=2)
    bar = {"symbol": "line-ns", "size": 12, "line": {"width": 2, "color": "black"}}
    x, y = audit.group_lateness[shown].tolist(), place[shown].tolist()
    figure.add_scatter(x=x, y=y, mode="markers", marker=bar, name="median of a group", row=1, col=2)
    ticks = {"tickvals": y, "ticktext": [", ".join(map(str, data.groups[group])) for group in shown.tolist()]}
    name = "group" if len(shown) == len(order) else f"the latest {len(shown)} of {len(order):,} groups"
    figure.update_yaxes(title=name, range=[len(shown) - 0.4, -0.6], row=1, col=2, **ticks)
    figure.update_xaxes(title="lateness (mean rank, 1 = last)", range=[-0.02, 1.02], row=1, col=2)
