"""Probes: what a transformer does inside, measured and drawn.

Each probe is a function of a HookedTransformer (and, where it needs one, a task) that returns a frozen
result with numbers, raw values, `.to_dict()` and `.plot()`. `PROBES` holds them all.
"""

from __future__ import annotations

from collections.abc import Callable

from anchorlens.probes.embedding_pca import embedding_pca
from anchorlens.probes.q_condensation import q_condensation
from anchorlens.probes.result import ProbeResult
from anchorlens.probes.stable_rank import stable_rank
from anchorlens.probes.v_similarity import v_similarity

PROBES: tuple[Callable[..., ProbeResult], ...] = (v_similarity, q_condensation, embedding_pca, stable_rank)
"""Every probe, in the order a report shows them."""

__all__ = ["PROBES", "ProbeResult", "embedding_pca", "q_condensation", "stable_rank", "v_similarity"]
