"""What the page shows as pictures: of one model, or of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from anchorlens.picture import script_json
from anchorlens.probes.attention_patterns import AttentionPatterns
from anchorlens.probes.registry import PROBES, apply
from anchorlens.probes.result import ProbeResult
from anchorlens.report.charts import trajectory
from anchorlens.report.words import CAPTIONS, Caption
from anchorlens.side_by_side import side_by_side
from anchorlens.training.curve import training_curve
from anchorlens.verdict.verdict import Subject, Verdict

LONGEST_LABEL = 30
"""Characters above a picture that stands beside others."""


@dataclass(frozen=True, eq=False)
class Take:
    """What one model gives to an exhibit."""

    label: str
    """What the model is called."""
    text: str
    """The headline, or why there is no picture."""
    figure: go.Figure | None = None
    """The picture; None where it was refused."""
    heads: Markup | None = None
    """What circuitsvis shows, as JSON for a script element."""


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One picture of the page with its words."""

    name: str
    """The probe's, or the report's own."""
    caption: Caption
    """Heading and how to read it."""
    takes: tuple[Take, ...]
    """One for each model."""
    figure: go.Figure | None
    """The picture; None where every model refused."""

    @property
    def json(self) -> Markup:
        """The picture for a script element."""
        assert self.figure is not None
        return Markup(script_json(self.figure.to_json() or ""))

    @property
    def words(self) -> str:
        """The picture for who does not see it."""
        texts = (take.text if len(self.takes) == 1 else f"{take.label}: {take.text}" for take in self.takes)
        return f"{self.caption.title}. {'; '.join(texts)}"


def probe_exhibits(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Iterator[Exhibit]:
    """Every probe's picture; a probe that refuses shows its reason.

    Args:
        verdicts: what is shown; the models are measured again.
        labels: what each is called.
    """
    for probe in PROBES:
        takes = []
        share_axes = True
        for verdict, label in zip(verdicts, labels, strict=True):
            try:
                result = _measured(probe, verdict.subject)
                takes.append(_take(label, result))
                share_axes = result.comparable_axes
            except ValueError as error:
                takes.append(Take(label, str(error)))
        yield _exhibit(probe.__name__, takes, share_axes)


def training_exhibits(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Iterator[Exhibit]:
    """The training curves, and the trajectories with their forecasts where there are some."""
    takes = []
    for verdict, label in zip(verdicts, labels, strict=True):
        log = verdict.subject.log
        if log:
            takes.append(Take(label, f"{len(log):,} log lines", training_curve(log)))
        else:
            takes.append(Take(label, "the run's log (log.jsonl) is not beside the checkpoint"))
    yield _exhibit("training_curve", takes)
    if any(verdict.trajectory for verdict in verdicts):
        takes = []
        for verdict, label in zip(verdicts, labels, strict=True):
            moments = verdict.trajectory
            if moments:
                takes.append(Take(label, f"{len(moments)} checkpoints", trajectory(moments)))
            else:
                takes.append(Take(label, "one checkpoint, not the folder of its run"))
        yield _exhibit("trajectory", takes)


def _measured(probe: Callable[..., ProbeResult], subject: Subject) -> ProbeResult:
    checkpoint = subject.checkpoint
    if checkpoint is None or checkpoint.train is None:
        return apply(probe, subject.model, subject.task)
    device = next(subject.model.parameters()).device
    return apply(probe, subject.model, subject.task, lambda: checkpoint.initial_model(device))


def _take(label: str, result: ProbeResult) -> Take:
    heads = None
    if isinstance(result, AttentionPatterns):
        heads = Markup(script_json(result.circuitsvis_json()))
    return Take(label, result.headline(), _drawable(result.plot()), heads)


def _drawable(figure: go.Figure) -> go.Figure:
    """The figure with heatmaps that hold no number unseen: plotly.js reports errors where it draws them."""
    heatmaps: Any = figure.select_traces(selector={"type": "heatmap"})
    for trace in heatmaps:
        values = np.asarray(trace.z, dtype=float)
        if not np.isfinite(values).any():
            trace.update(z=np.zeros_like(values), opacity=0, hoverinfo="skip")
    return figure


def _exhibit(name: str, takes: Sequence[Take], share_axes: bool = True) -> Exhibit:
    drawn = [(take.figure, _short(take.label)) for take in takes if take.figure is not None]
    figure = drawn[0][0] if drawn else None
    if len(takes) > 1 and drawn:
        figures, labels = zip(*drawn, strict=True)
        figure = side_by_side(figures, labels, share_axes=share_axes)
    caption = CAPTIONS[name]
    if figure is not None and figure.layout.title.text == caption.title:
        figure.update_layout(title_text="")  # the heading says it already
    return Exhibit(name, caption, tuple(takes), figure)


def _short(label: str) -> str:
    """A label that fits above a picture; plotly reads a few tags, so that it is escaped."""
    if len(label) > LONGEST_LABEL:
        half = LONGEST_LABEL // 2
        label = f"{label[: half - 1]}…{label[-half:]}"
    return escape(label)
