"""The picture of an audit: when mappings are fit, and how late each group is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from anchorlens.figures import BLUE, GREY, ORANGE, styled

if TYPE_CHECKING:
    from anchorlens.audit.result import Audit
    from anchorlens.picture import Picture

MOST_GROUPS = 24
"""Groups that are drawn, the latest ones."""


def picture(audit: Audit) -> Picture:
    """Left the share of mappings that is fit against the step, a line for each model; right lateness by group.

    Where the truth is known, mappings that violate the rule are vermilion and the others blue; where it is not,
    those that are flagged. Dotted: the fences. Groups stand with the latest on top.
    """
    from plotly.subplots import make_subplots

    data = audit.mappings
    known = data.violates is not None
    odd = data.violates if data.violates is not None else audit.flagged
    names = ("obeys", "violates") if known else ("not flagged", "flagged")
    figure = make_subplots(
        rows=1,
        cols=2,
        horizontal_spacing=0.16,
        subplot_titles=("share fit", f"lateness by group{_cut(len(data.groups))}"),
    )
    steps = [0, *audit.moments]
    for is_odd, name, colour in ((False, names[0], BLUE), (True, names[1], ORANGE)):
        rows = np.flatnonzero(odd == is_odd)
        for k, each in enumerate(audit.fit_steps[:, rows] if len(rows) else []):
            share = [float((each <= step).mean()) for step in steps]
            legend = {"name": f"{name} ({len(rows):,})", "legendgroup": name, "showlegend": k == 0}
            figure.add_scatter(
                x=steps, y=share, mode="lines", line={"color": colour, "width": 1.5}, row=1, col=1, **legend
            )
    for limit in audit.fences:
        if limit is not None and limit <= steps[-1]:
            line = {"color": GREY, "dash": "dot", "width": 1}
            figure.add_shape(type="line", x0=limit, x1=limit, y0=0, y1=1, line=line, row=1, col=1)
    shown = audit.group_order[:MOST_GROUPS]
    labels = [", ".join(map(str, data.groups[group])) for group in shown.tolist()]
    for is_odd, colour in ((False, BLUE), (True, ORANGE)):
        x, y = [], []
        for place, group in enumerate(shown.tolist()):
            values = audit.lateness[(data.group_of == group) & (odd == is_odd)]
            x += values.tolist()
            y += (place + 0.5 * (np.arange(len(values)) / max(1, len(values) - 1) - 0.5)).tolist()
        marker = {"color": colour, "size": 3.5, "opacity": 0.5 if not is_odd else 0.9}
        figure.add_scatter(x=x, y=y, mode="markers", marker=marker, showlegend=False, row=1, col=2)
    medians = audit.group_lateness[shown].tolist()
    bar = {"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": "black"}}
    figure.add_scatter(
        x=medians, y=list(range(len(shown))), mode="markers", marker=bar, name="median", row=1, col=2
    )
    figure.update_xaxes(title="step", range=[0, steps[-1]], row=1, col=1)
    figure.update_yaxes(title="share of mappings", range=[-0.02, 1.02], row=1, col=1)
    figure.update_xaxes(title="lateness (mean rank, 1 = last)", range=[-0.02, 1.02], row=1, col=2)
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=labels, range=[len(shown) - 0.4, -0.6], row=1, col=2
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    figure.update_annotations(font_size=12)
    height = max(420, 140 + 18 * len(shown))
    return styled(figure, f"{data.name}: which mappings are fit late", width=900, height=height)


def _cut(n_groups: int) -> str:
    return f", the latest {MOST_GROUPS} of {n_groups:,}" if n_groups > MOST_GROUPS else ""
