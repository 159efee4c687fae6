"""What the page shows as pictures: of one model, or of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from anchorlens.figures import complete, in_words
from anchorlens.figures.picture import plotly_text, script_json
from anchorlens.figures.side_by_side import side_by_side
from anchorlens.figures.training_curve import training_curve
from anchorlens.probes.attention_patterns import AttentionPatterns
from anchorlens.probes.own import first_sentence, what_went_wrong
from anchorlens.probes.registry import PROBES, apply
from anchorlens.probes.result import ProbeResult
from anchorlens.show.report.charts import trajectory
from anchorlens.show.words import CAPTIONS, NO_DOCSTRING, Caption
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
    failed: bool = False
    """Whether an error left no picture, rather than a refusal."""


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One picture of the page with its words."""

    id: str
    """Of its element: the name of the probe, `own-` before it for one of your own, or the report's."""
    caption: Caption
    """Heading and how to read it."""
    takes: tuple[Take, ...]
    """One for each model."""
    json: Markup | None
    """The picture for a script element; None where every model refused."""
    height: int = 0
    """Of the picture, in pixels."""

    @property
    def words(self) -> str:
        """The picture for who does not see it."""
        texts = (take.text if len(self.takes) == 1 else f"{take.label}: {take.text}" for take in self.takes)
        return f"{self.caption.title}. {'; '.join(texts)}"


def probe_exhibits(
    verdicts: Sequence[Verdict], labels: Sequence[str], probes: Sequence[Callable[..., ProbeResult]] = PROBES
) -> Iterator[Exhibit]:
    """Every probe's picture; one that refuses shows its reason, one that fails its error.

    Args:
        verdicts: what is shown; the models are measured again.
        labels: what each is called.
        probes: whose pictures, in order.
    """
    for probe in probes:
        takes = []
        share_axes = True
        for verdict, label in zip(verdicts, labels, strict=True):
            try:
                result = _measured(probe, verdict.subject)
                takes.append(_take(label, result, in_words(probe.__name__)))
                share_axes = result.comparable_axes
            except Exception as error:
                text = what_went_wrong(error, probe)
                takes.append(Take(label, text, failed=not isinstance(error, ValueError)))
        name, caption = probe.__name__, _caption(probe)
        yield _exhibit(name if probe in PROBES else f"own-{name}", caption, takes, share_axes)


def _caption(probe: Callable[..., ProbeResult]) -> Caption:
    """Ours for a shipped probe; of one's own, its name and its docstring's first sentence."""
    if probe in PROBES:
        return CAPTIONS[probe.__name__]
    return Caption(in_words(probe.__name__), first_sentence(probe) or NO_DOCSTRING)


def training_exhibits(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Iterator[Exhibit]:
    """The training curves, and the trajectories with their forecasts where there are some."""
    takes = []
    for verdict, label in zip(verdicts, labels, strict=True):
        log = verdict.subject.log
        if log:
            takes.append(Take(label, f"{len(log):,} log lines", training_curve(log)))
        else:
            takes.append(Take(label, "the run's log (log.jsonl) is not beside the checkpoint"))
    yield _exhibit("training_curve", CAPTIONS["training_curve"], takes)
    if any(verdict.trajectory for verdict in verdicts):
        takes = []
        for verdict, label in zip(verdicts, labels, strict=True):
            points = verdict.trajectory
            if points:
                takes.append(Take(label, f"{len(points)} checkpoints", trajectory(points)))
            else:
                takes.append(Take(label, "one checkpoint, not the folder of its run"))
        yield _exhibit("trajectory", CAPTIONS["trajectory"], takes)


def _measured(probe: Callable[..., ProbeResult], subject: Subject) -> ProbeResult:
    checkpoint = subject.checkpoint
    model, task = subject.model_and_task()
    if checkpoint is None or checkpoint.train is None:
        return apply(probe, model, task)
    device = next(model.parameters()).device
    return apply(probe, model, task, lambda: checkpoint.initial_model(device))


def _take(label: str, result: ProbeResult, title: str) -> Take:
    heads = None
    if isinstance(result, AttentionPatterns):
        heads = Markup(script_json(result.circuitsvis_json()))
    figure = _drawable(complete(result.plot(), title))
    figure.to_json()  # where it cannot be written, this model has no picture, and the others do
    return Take(label, str(result.headline()), figure, heads)


def _drawable(figure: go.Figure) -> go.Figure:
    """The figure with heatmaps that hold no number unseen: plotly.js reports errors where it draws them."""
    heatmaps: Any = figure.select_traces(selector={"type": "heatmap"})
    for trace in heatmaps:
        values = np.asarray(trace.z, dtype=float)
        if not np.isfinite(values).any():
            trace.update(z=np.zeros_like(values), opacity=0, hoverinfo="skip")
    return figure


def _exhibit(identity: str, caption: Caption, takes: Sequence[Take], share_axes: bool = True) -> Exhibit:
    try:
        figure = _joined(takes, share_axes)
    except ValueError as error:  # plotly's, of pictures that have no axes for example
        figure, why = None, f"these pictures cannot stand side by side: {str(error).strip().splitlines()[0]}"
        takes = [replace(take, text=f"{take.text} ({why})", figure=None) for take in takes]
    if figure is None:
        return Exhibit(identity, caption, tuple(takes), None)
    layout: Any = figure["layout"]
    if layout.title.text == caption.title:
        figure.update_layout(title_text="")  # the heading says it already
    content = Markup(script_json(figure.to_json() or ""))
    return Exhibit(identity, caption, tuple(takes), content, layout.height)


def _joined(takes: Sequence[Take], share_axes: bool) -> go.Figure | None:
    """The pictures of all models as one; None where there are none."""
    drawn = [(take.figure, _short(take.label)) for take in takes if take.figure is not None]
    if len(takes) == 1 or not drawn:
        return drawn[0][0] if drawn else None
    figures, labels = zip(*drawn, strict=True)
    return side_by_side(figures, labels, share_axes=share_axes)


def _short(label: str) -> str:
    """A label that fits above a picture; plotly reads a few tags, so that it is escaped."""
    if len(label) > LONGEST_LABEL:
        half = LONGEST_LABEL // 2
        label = f"{label[: half - 1]}…{label[-half:]}"
    return plotly_text(label)
