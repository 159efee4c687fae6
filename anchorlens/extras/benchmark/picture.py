"""The figure of a benchmark: the AUC of every reading with its interval, a panel for each question."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import views
from anchorlens.extras.benchmark.result import QUESTIONS, Benchmark, ReadingScore
from anchorlens.extras.benchmark.shipped import reference
from anchorlens.plots import BLUE, GREY, plotly_text, styled

MOST_READINGS = 30
"""The largest number of rows; the readings whose AUCs are farthest from 0.5 are drawn."""


@views.figure.register(Benchmark)
def benchmark_figure(result: Benchmark) -> go.Figure:
    """Draw the AUCs of the probe's readings in blue and, if known, of anchorlens's readings in grey."""
    ours = reference()
    own = {reading.name for reading in result.readings}
    others = [] if ours is None else [reading for reading in ours.readings if reading.name not in own]
    groups = (("yours" if others else "readings", BLUE, result.readings), ("ours", GREY, others))
    shown = sorted([*result.readings, *others], key=lambda reading: reading.telling)[-MOST_READINGS:]
    place = {reading.name: k for k, reading in enumerate(shown)}
    names, title = list(QUESTIONS), "AUC (dotted line: no information)"
    figure = make_subplots(
        cols=len(names), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=names, x_title=title
    )
    for column, question in enumerate(QUESTIONS, start=1):
        for name, colour, readings in groups:
            drawn = [reading for reading in readings if reading.name in place]
            trace = _dots(drawn, question, place).update(name=name, marker_color=colour, legendgroup=name)
            trace.update(showlegend=column == 1 and bool(others))
            figure.add_trace(trace, row=1, col=column)
        figure.add_vline(x=0.5, line={"color": "black", "dash": "dot", "width": 1}, row=1, col=column)  # pyright: ignore[reportArgumentType]
    labels = [plotly_text(reading.name) for reading in shown]
    figure.update_yaxes(tickvals=list(range(len(shown))), ticktext=labels, range=[-0.6, len(shown) - 0.4])
    figure.update_xaxes(range=[-0.06, 1.06])
    drawn = styled(figure, "How well each reading separates models", width=1000, height=190 + 22 * len(shown))
    longest = max(len(name) for name in labels)
    return drawn.update_layout(margin_l=40 + 7 * longest, margin_t=80)


def _dots(readings: Sequence[ReadingScore], question: str, place: dict[str, int]) -> go.Scatter:
    """Draw a dot for the AUC of each reading on a question, with its interval if it has one."""
    scores = [(place[reading.name], reading.scores[question]) for reading in readings]
    there = [(y, score, score.auc) for y, score in scores if score.auc is not None]
    above = [0 if score.high is None else score.high - auc for _, score, auc in there]
    below = [0 if score.low is None else auc - score.low for _, score, auc in there]
    interval = {"array": above, "arrayminus": below, "thickness": 1.2, "width": 0}
    x, y = [auc for _, _, auc in there], [y for y, _, _ in there]
    return go.Scatter(x=x, y=y, mode="markers", error_x=interval, marker={"size": 7})
