"""The readings that the mechanism verdict goes by: numbers of the probes, free of width and depth.

None of them looks at answers to unseen pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens import probes
from anchorlens.configuration import documented
from anchorlens.probes.result import ProbeResult

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

    from anchorlens.task import AnchorTask

MEASURED: tuple[tuple[Callable[..., ProbeResult], Mapping[str, Any]], ...] = (
    (probes.v_similarity, {}),
    (probes.fusion_similarity, {}),
    (probes.mask_key_token, {"perplexity": None}),
    (probes.mask_second_anchor, {}),
    (probes.information_flow, {"effects": "merged", "n_sequences": 1}),
    (probes.stable_rank, {}),
    (probes.q_condensation, {}),
    (probes.embedding_pca, {}),
)
"""Probes with the options that leave out what only pictures need."""


@documented
@dataclass(frozen=True)
class Reading:
    """One number of one probe."""

    probe: str
    """Name of the probe."""
    field: str
    """Which of its numbers."""
    meaning: str
    """What it is, in a few words."""
    normalise: Callable[[float, Any], float] | None = None
    """(value, model.cfg) -> the same with width taken out; None where it has none."""

    @property
    def name(self) -> str:
        """`probe.field`."""
        return f"{self.probe}.{self.field}"


def _over_random_cosine(value: float, cfg: Any) -> float:
    """Mean |cosine| over that of random directions in d_model dimensions, sqrt(2 / (pi d_model))."""
    return value * float(np.sqrt(np.pi * cfg.d_model / 2))


READINGS: tuple[Reading, ...] = (
    Reading("v_similarity", "centred_gap", "values at the first anchor say g(x; a)"),
    Reading("fusion_similarity", "centred_gap", "inputs of equal targets look alike at the last position"),
    Reading("mask_key_token", "mirror_merge", "without the key, distance of a pair to its mirror"),
    Reading("mask_key_token", "silhouette_ordered", "without the key, clusters of ordered pairs"),
    Reading("mask_key_token", "silhouette_unordered", "without the key, clusters of unordered pairs"),
    Reading("mask_second_anchor", "centred_gap", "without the second anchor, g(x; a) is what is left"),
    Reading("information_flow", "inferential_route", "answer lost without key to anchors to last"),
    Reading("information_flow", "symmetric_route", "answer lost without anchors to last, key to last"),
    Reading("information_flow", "margin", "margin on trained pairs with fresh noise, in logits"),
    Reading("stable_rank", "w_q_normalized", "stable rank of the first W_Q over a Gaussian's"),
    Reading(
        "q_condensation", "mean_abs_cosine", "likeness of W_Q's neurons over random", _over_random_cosine
    ),
    Reading("embedding_pca", "lag_order", "order of the rules in the embedding"),
)
"""What the verdict may go by, in the order of the probes."""


def take_readings(model: HookedTransformer, task: AnchorTask) -> dict[str, float | None]:
    """Take every reading.

    Args:
        model: any HookedTransformer of two layers or more.
        task: what it was trained on.

    Returns:
        `probe.field` -> value; None where the probe has none for this model or task.

    Raises:
        ValueError: a probe refuses the model or the task, with its reason.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> readings = take_readings(build_model(ModelConfig(gamma=0.5)), AnchorTask())
        >>> readings["information_flow.inferential_route"] is None  # a random start has no answer to lose
        True
    """
    results: dict[str, ProbeResult] = {}
    for probe, options in MEASURED:
        try:
            results[probe.__name__] = probes.apply(probe, model, task, **options)
        except ValueError as error:
            raise ValueError(f"{probe.__name__}: {error}") from None
    values: dict[str, float | None] = {}
    for reading in READINGS:
        value = getattr(results[reading.probe], reading.field)
        if value is not None and reading.normalise is not None:
            value = reading.normalise(value, model.cfg)
        values[reading.name] = None if value is None or not np.isfinite(value) else float(value)
    return values
