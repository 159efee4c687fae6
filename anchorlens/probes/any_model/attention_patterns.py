"""The attention patterns of every head on one sequence, as an interactive page and as a static plot."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from einops import rearrange
from plotly.subplots import make_subplots

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.hooks import PATTERN, read
from anchorlens.plots import SHARE, styled
from anchorlens.plots.picture import drawn_by, script_json
from anchorlens.probes.shared.anchor_sequences import checked_sequences, default_sequence
from anchorlens.probes.shared.checks import check_inputs, check_model, token_rows, two_anchor_task
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.tasks.two_anchor.task import AnchorTask

MOST_DRAWN = 64
"""The largest number of heads in the plot. The result contains the attention of all heads."""


@probe_result
class AttentionPatterns(ProbeResult):
    """The attention of every layer and head on one sequence."""

    probe = "attention_patterns"
    readings = ("to_key_and_anchors",)
    tokens: np.ndarray
    """[pos] The sequence."""
    key_position: int | None
    """The position of the key token, which the anchors follow. The position is `None` without a two-anchor
    task."""
    attention: np.ndarray
    """[layer, head_index, query_pos, key_pos] The attention after the softmax, from 0 to 1."""
    to_key_and_anchors: float | None
    """The attention of the last position to key and anchors in the last layer, averaged over heads, from 0 to
    1. The value is `None` without a two-anchor task."""

    def headline(self) -> str:
        """Return the attention of the last position in the last layer as text."""
        if self.to_key_and_anchors is None:
            seen = self.attention[-1, :, -1].mean(axis=0)  # [key_pos]
            return f"last layer: the last position looks most at position {seen.argmax()}, {seen.max():.0%}"
        share = f"{self.to_key_and_anchors:.0%}"
        return f"last layer: the last position pays {share} of its attention to key and anchors"

    def plot(self) -> go.Figure:
        """Plot a heatmap of the attention for each layer and head."""
        n_heads, n_pos = self.attention.shape[1:3]
        heads = list(np.ndindex(self.attention.shape[:2]))[:MOST_DRAWN]
        n_columns = min(4, n_heads if n_heads > 1 else 2, len(heads))
        n_rows = -(-len(heads) // n_columns)
        figure = make_subplots(
            rows=n_rows,
            cols=n_columns,
            subplot_titles=[f"layer {layer}, head {head}" for layer, head in heads],
            horizontal_spacing=0.22 / n_columns,
            vertical_spacing=0.32 / n_rows,
        )
        small = n_columns > 2
        bar = {"title": "attention", "len": 0.9, "thickness": 14}
        ticks: dict[str, Any] = {"tickvals": list(range(n_pos)), "tickfont": {"size": 8 if small else 10}}
        ticks["ticktext"] = [str(token) for token in self.tokens]
        for i, head in enumerate(heads):
            at: dict[str, Any] = {"row": i // n_columns + 1, "col": i % n_columns + 1}
            values = np.where(np.tri(n_pos, dtype=bool), self.attention[head], np.nan)
            figure.add_trace(go.Heatmap(z=values, colorbar=bar, showscale=i == 0, **SHARE), **at)
            figure.update_xaxes(title="to" if at["row"] == n_rows else None, **ticks, **at)
            title = "from" if at["col"] == 1 else None
            figure.update_yaxes(title=title, autorange="reversed", **ticks, **at)
        figure.update_annotations(font_size=9 if small else 11)  # the subplots' titles
        height = 120 + n_rows * (170 if small else 260)
        return styled(figure, "Attention patterns", height=height)

    def html(self) -> str:
        """Return interactive circuitsvis views of every head as an HTML fragment that works offline."""
        return self._html(alone=True)

    def _repr_html_(self) -> str:
        return self._html(alone=False)

    def _html(self, *, alone: bool) -> str:
        heads = np.ndindex(self.attention.shape[:2])
        shown = {
            "attention": rearrange(self.attention, "layer head q k -> (layer head) q k").round(6).tolist(),
            "tokens": [escape(str(token)) for token in self.tokens],
            "attentionHeadNames": [f"layer {layer}, head {head}" for layer, head in heads],
            "maxValue": 1.0,
            "minValue": 0.0,
        }
        given = script_json(json.dumps(shown))
        call = f"CircuitsVis.render(place.id, CircuitsVis.AttentionHeads, {given})"
        return drawn_by("CircuitsVis", call, alone=alone)


@takes_any(on_tokens=True)
def attention_patterns(
    model: HookedTransformer, task: AnchorTask | None = None, tokens: object = None
) -> AttentionPatterns:
    """Measure the attention of every layer and head on one sequence.

    Limitations: The probe does not show whether the model uses the attended tokens. A head can attend to the
    anchors without any effect on the answer.

    Args:
        model: a HookedTransformer, which the probe does not change.
        task: the task, which defines the positions of key and anchors. Without a two-anchor task, the probe
            accepts any sequence of the model's tokens.
        tokens: the sequence, [pos]. With an AnchorTask, the default is a sequence of a trained pair, for
            example [35, 63, 40, 1, 2, ...].

    Returns:
        The attention after the softmax, from 0 to 1. In a notebook, the package circuitsvis draws interactive
        views of the heads. `.html()` returns these views as an HTML fragment that works offline. `.plot()`
        returns a static plot.

    Raises:
        ValueError: If the tokens are not a sequence of the task.
        ValueError: If the model is too small for the task.
        ValueError: If you give neither a task nor tokens.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> attention_patterns(build_model(ModelConfig(gamma=0.5)), AnchorTask()).attention.shape
        (2, 1, 9, 9)
        >>> attention_patterns(build_model(ModelConfig(gamma=0.5)), tokens=[5, 0, 200, 7]).attention.shape
        (2, 1, 4, 4)

    Source: The plot shows the attention matrices A_l of arXiv 2405.05409 and 2501.08537. The package
    circuitsvis draws the interactive views.
    """
    key = to_key_and_anchors = None
    if tokens is not None and two_anchor_task(task) is None:
        check_model(model)
        sequence = token_rows(tokens)[:1]
    else:
        task = check_inputs(model, task, answers=False)
        sequence, key = checked_sequences(task, default_sequence(task) if tokens is None else tokens)
    patterns = read(model, sequence[:1], [(layer, PATTERN) for layer in range(model.cfg.n_layers)])
    attention = np.concatenate([pattern.double().cpu().numpy() for pattern in patterns.values()])
    if task is not None and key is not None:
        seen = attention[-1, :, -1, key : key + 1 + task.chain_length].sum(axis=-1)
        to_key_and_anchors = float(seen.mean())
    return AttentionPatterns(sequence[0].numpy(), key, attention, to_key_and_anchors)
