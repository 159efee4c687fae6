"""A probe that needs no task."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import plotly.graph_objects as go

from anchorlens.probes import ProbeResult


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingNorm(ProbeResult):
    """Norm of the embedding of every token."""

    probe: ClassVar[str] = "embedding_norm"
    readings: ClassVar[tuple[str, ...]] = ("mean",)
    norms: np.ndarray
    """[token] Euclidean norm."""
    mean: float
    """Over tokens."""

    def headline(self):
        return f"mean norm of the embeddings: {self.mean:.2f}"

    def plot(self):
        return go.Figure(go.Bar(y=self.norms))


def embedding_norm(model) -> EmbeddingNorm:
    """Measure the norm of every token's embedding."""
    norms = model.embed.W_E.detach().norm(dim=-1).cpu().numpy()
    return EmbeddingNorm(norms, float(norms.mean()))
