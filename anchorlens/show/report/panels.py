"""The plots of the report and their captions, with a figure for each probe and a panel for each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from anchorlens.plots import complete, in_words
from anchorlens.plots.curves import training_curve
from anchorlens.plots.from_specs import figure_of
from anchorlens.plots.picture import plotly_text, script_json
from anchorlens.plots.side_by_side import side_by_side
from anchorlens.probes.from_file import in_one_sentence, what_went_wrong
from anchorlens.probes.registry import REPORT_PROBES, SHIPPED
from anchorlens.probes.shared.contract import ProbeResult, is_for, needs_training_set
from anchorlens.show.words import CAPTIONS, NO_DOCSTRING, Caption, caption_of, short
from anchorlens.tasks.shared.figure_specs import SampleTable
from anchorlens.tasks.shared.measures import has_phases
from anchorlens.texts import first_line
from anchorlens.verdict.verdict import Verdict

CARD = ("information_flow", "v_similarity", "q_condensation", "embedding_pca", "mask_key_token")
"""The probes whose plots come first."""

ALONE = 410
"""The largest height of the plots of these probes in pixels, if there is one model."""


@dataclass(eq=False)
class Panel:
    """The part of a figure for one model."""

    label: str
    """The label of the model."""
    text: str
    """The headline of the result, or the reason why there is no plot."""
    picture: go.Figure | None = None
    """The plot, or None without a plot."""


@dataclass(frozen=True, eq=False)
class PageFigure:
    """The panels of all models as one plot, with the texts of the plot."""

    id: str
    """The id of the HTML element. For a shipped probe, the id is the name of the probe. For your own probe,
    the id is `own-` and the name. For a plot that only the report has, the id is the name of the plot."""
    caption: Caption
    """The heading of the plot, and the instructions for reading the plot."""
    panels: Sequence[Panel]
    """A panel for each model."""
    json: Markup | None = None
    """The plot as JSON for a script element, or None if no model has a plot."""
    height: int = 0
    """The height of the plot in pixels."""
    comes_first: bool = False
    """Whether the page shows the plot outside a folded section."""

    @property
    def words(self) -> str:
        """The description of the plot in words, for readers who cannot see the plot."""
        several = len(self.panels) > 1
        texts = (f"{panel.label}: {panel.text}" if several else panel.text for panel in self.panels)
        return f"{self.caption.title}. {'; '.join(texts)}"


def probe_figures(
    verdicts: Sequence[Verdict],
    labels: Sequence[str],
    probes: Sequence[Callable[..., ProbeResult]] = REPORT_PROBES,
) -> Iterator[PageFigure]:
    """Make the figure of every probe.

    If a probe refuses the model or fails, its figure shows the reason or the error.

    Args:
        verdicts: the verdicts to show. The probes measure the models again.
        labels: the label of each model.
        probes: the probes whose plots are shown, in order.
    """
    for probe in probes:
        panels, result = [], None
        share_axes = True
        for verdict, label in zip(verdicts, labels, strict=True):
            try:
                result = verdict.subject.measure(probe)
                panels.append(_panel(label, result, in_words(probe.__name__)))
                share_axes = result.comparable_axes
            except Exception as error:
                panels.append(Panel(label, refusal(error, probe)))
        name, is_own = probe.__name__, probe not in SHIPPED
        caption = None if is_own else caption_of(name, result)
        caption = caption or Caption(in_words(name), in_one_sentence(probe) or NO_DOCSTRING)
        first = is_own or name in CARD or not is_for(probe, ()) or needs_training_set(probe)
        yield _figure(f"own-{name}" if is_own else name, caption, panels, share_axes, first=first)


def refusal(error: Exception, probe: Callable[..., ProbeResult]) -> str:
    """Return the reason why a probe has no plot: the message of a refusal or a failure."""
    return ("" if isinstance(error, ValueError) else "it failed with ") + what_went_wrong(error, probe)


def answer_figures(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Iterator[PageFigure]:
    """Make the plots that the evaluations of the models describe."""
    figures: dict[str, tuple[Caption, list[Panel]]] = {}
    for verdict, label in zip(verdicts, labels, strict=True):
        words = ", ".join(f"{title} {value.value:.3f}" for title, value, _ in verdict.behaviour.rows())
        for spec in verdict.behaviour.figure_specs:
            if not isinstance(spec, SampleTable):  # the page shows these as tables
                _, panels = figures.setdefault(spec.title, (Caption(spec.title, spec.caption), []))
                panels.append(Panel(label, words, figure_of(spec)))
    for k, (caption, panels) in enumerate(figures.values()):
        yield _figure(f"answers-{k}", caption, panels)


def training_figures(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Iterator[PageFigure]:
    """Make the plot of the training curves."""
    curves = []
    for verdict, label in zip(verdicts, labels, strict=True):
        if log := verdict.subject.log:
            curves.append(Panel(label, f"{len(log):,} log lines", training_curve(log)))
        else:
            missing = "the run's log (log.jsonl) was not found next to the checkpoint"
            damaged = (note for note in verdict.warnings if "log.jsonl is damaged" in note)
            curves.append(Panel(label, next(damaged, missing)))
    phases = any(has_phases(verdict.behaviour.metrics) for verdict in verdicts)
    caption = CAPTIONS["training_curve" if phases else "training_without_phases"]
    yield _figure("training_curve", caption, curves)


def _panel(label: str, result: ProbeResult, title: str) -> Panel:
    """Make the panel of one model, without handling errors."""
    picture = complete(result.plot(), title)
    heatmaps: Any = picture.select_traces(selector={"type": "heatmap"})
    for trace in heatmaps:  # plotly.js reports errors for a heatmap without numbers
        values = np.asarray(trace.z, dtype=float)
        if not np.isfinite(values).any():
            trace.update(z=np.zeros_like(values), opacity=0, hoverinfo="skip")
    picture.to_json()  # raises here if it cannot be written, so that only this model has no picture
    return Panel(label, str(result.headline()), picture)


def _figure(
    identity: str,
    caption: Caption,
    panels: Sequence[Panel],
    share_axes: bool = True,
    *,
    first: bool = False,
) -> PageFigure:
    """Join all panels to one plot, on equal scales if `share_axes` is true."""
    made = PageFigure(identity, caption, panels, comes_first=first)
    pictures = [panel.picture for panel in panels if panel.picture is not None]
    labels = [plotly_text(short(panel.label)) for panel in panels if panel.picture is not None]
    if not pictures:
        return made
    figure = pictures[0]
    if len(panels) > 1:
        try:
            figure = side_by_side(pictures, labels, share_axes=share_axes)
        except ValueError as error:  # raised by plotly, for pictures without axes for example
            why = f"these pictures cannot stand side by side: {first_line(error)}"
            for panel in panels:
                panel.text, panel.picture = f"{panel.text} ({why})", None
            return made
    layout: Any = figure["layout"]
    figure.update_layout(title_text="")  # the page's heading has the title
    if len(panels) == 1 and identity in CARD:
        figure.update_layout(height=min(layout.height, ALONE), margin_t=40)
    return replace(made, json=Markup(script_json(figure.to_json() or "")), height=layout.height)
