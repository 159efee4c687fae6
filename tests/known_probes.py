"""Probes as a user writes them: a good one, as a file, and what goes wrong with others."""

ATTENTION_BREADTH = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import plotly.graph_objects as go

from anchorlens.models import hooks
from anchorlens.plots import styled
from anchorlens.probes import ProbeResult, stable_rank

if TYPE_CHECKING:
    from anchorlens import HookedTransformer


@dataclass(frozen=True)
class AttentionBreadth(ProbeResult):
    probe: ClassVar[str] = "attention_breadth"
    readings: ClassVar[tuple[str, ...]] = ("last_layer",)
    breadth: np.ndarray
    last_layer: float

    def headline(self) -> str:
        return f"the last position looks at {self.last_layer:.2f} tokens"

    def plot(self) -> go.Figure:
        return styled(go.Figure(go.Heatmap(z=self.breadth)), "Attention breadth")


def attention_breadth(model: HookedTransformer, task, *, n_sequences: int = 100) -> AttentionBreadth:
    """Each cell is how many tokens a head looks at. 1 = one alone, 9 = all alike."""
    tokens = task.sample(n_sequences, split="id", seed=0).tokens
    places = [(layer, hooks.PATTERN) for layer in range(model.cfg.n_layers)]
    last = [pattern[:, :, -1].double() for pattern in hooks.read(model, tokens, places).values()]
    entropy = [-(p * p.clamp_min(1e-12).log()).sum(-1).mean(0) for p in last]
    breadth = np.array([layer.exp().tolist() for layer in entropy])
    return AttentionBreadth(breadth, float(breadth[-1].mean()))


def _helper(model) -> AttentionBreadth: ...
def says_nothing(model): ...
def gives_a_number(scores) -> float: ...
def names_the_unknown(model) -> Unknown: ...
'''
"""One probe, and functions that are none."""
