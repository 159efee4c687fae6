"""The readings that the mechanism verdict goes by: numbers of the probes, free of width and depth.

None of them looks at answers to unseen pairs, masked or not. Two look at what activations unseen pairs have
before the last MLP, one at margins on trained pairs with held-out keys; docs/verdict.md says how the verdict
does without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlens import probes
from anchorlens.configuration import documented
from anchorlens.probes.fusion_similarity import mirror_comparisons, unseen_comparisons
from anchorlens.probes.shared.anchor_sequences import held_out_position, random_sequences
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.verdict.pooled_routes import pooled_routes

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

N_MANY = 40

MEASURED: Mapping[str, tuple[Callable[..., Any], Callable[[AnchorTask], Mapping[str, Any]]]] = {
    "v_similarity": (probes.v_similarity, lambda task: {}),
    "fusion_similarity": (probes.fusion_similarity, lambda task: {}),
    "fusion_similarity of unseen pairs": (
        probes.fusion_similarity,
        lambda task: {"comparisons": unseen_comparisons(task), "keys": many_keys(task)},
    ),
    "fusion_similarity of mirrored pairs": (
        probes.fusion_similarity,
        lambda task: {"comparisons": mirror_comparisons(task)},
    ),
    "mask_key_token": (  # the noise as the readings were calibrated; pictures draw it independently
        probes.mask_key_token,
        lambda task: {"perplexity": None, "seen": True, "noise": "shared"},
    ),
    "mask_second_anchor": (probes.mask_second_anchor, lambda task: {}),
    "information_flow": (probes.information_flow, lambda task: {"effects": "margin"}),
    "information_flow of pooled anchors": (pooled_routes, lambda task: {}),
    "information_flow of held-out keys": (
        probes.information_flow,
        lambda task: {"effects": "margin", "tokens": held_out_sequences(task)},
    ),
    "stable_rank": (probes.stable_rank, lambda task: {}),
    "q_condensation": (probes.q_condensation, lambda task: {}),
    "embedding_pca": (probes.embedding_pca, lambda task: {}),
}
"""What is measured: a probe, with options that ask more than its own or leave out what only pictures need."""


@documented
@dataclass(frozen=True)
class Reading:
    """One number of one measurement."""

    measurement: str
    """Which of `MEASURED`; it begins with the name of the probe."""
    field: str
    """Which of its numbers."""
    meaning: str
    """What it is, in a few words."""
    normalise: Callable[[float, Any], float] | None = None
    """(value, model.cfg) -> the same with width taken out; None where it has none."""

    @property
    def probe(self) -> str:
        """Name of the probe."""
        return self.measurement.split()[0]

    @property
    def name(self) -> str:
        """`probe.field`, and of which pairs where that is not the probe's own choice."""
        return f"{self.probe}.{self.field}{self.measurement.removeprefix(self.probe)}"


def _bounded_margin(value: float, cfg: Any) -> float:
    """A margin between -1 and 1, tanh(margin / 4): beyond a few logits more says no more."""
    return float(np.tanh(value / 4))


def _over_random_cosine(value: float, cfg: Any) -> float:
    """Mean |cosine| over that of random directions in d_model dimensions, sqrt(2 / (pi d_model))."""
    return value * float(np.sqrt(np.pi * cfg.d_model / 2))


READINGS: tuple[Reading, ...] = (
    Reading("v_similarity", "centred_gap", "values at the first anchor say g(x; a)"),
    Reading("fusion_similarity", "centred_gap", "inputs of equal targets look alike at the last position"),
    Reading(
        "fusion_similarity of unseen pairs",
        "centred_gap",
        "unseen pairs look like trained ones of equal target, before the last MLP",
    ),
    Reading(
        "fusion_similarity of unseen pairs",
        "nearest_same",
        "what an unseen pair looks most like has its target, before the last MLP",
    ),
    Reading(
        "fusion_similarity of mirrored pairs",
        "centred_gap",
        "both orders of an unseen pair look alike, before the last MLP",
    ),
    Reading("mask_key_token", "mirror_merge", "without the key, distance of a pair to its mirror"),
    Reading("mask_key_token", "silhouette_ordered", "without the key, clusters of ordered pairs"),
    Reading("mask_key_token", "silhouette_unordered", "without the key, clusters of unordered pairs"),
    Reading("mask_second_anchor", "centred_gap", "without the second anchor, g(x; a) is what is left"),
    Reading(
        "information_flow of pooled anchors",
        "inferential_route",
        "answer lost without key to anchors to last",
    ),
    Reading(
        "information_flow of pooled anchors",
        "symmetric_route",
        "answer lost without anchors to last, key to last",
    ),
    Reading("information_flow", "margin", "margin on trained pairs, tanh(logits / 4)", _bounded_margin),
    Reading(
        "information_flow of held-out keys",
        "margin",
        "margin on trained pairs with held-out keys, tanh(logits / 4)",
        _bounded_margin,
    ),
    Reading("stable_rank", "w_q_normalized", "stable rank of the first W_Q over a Gaussian's"),
    Reading(
        "q_condensation", "mean_abs_cosine", "likeness of W_Q's neurons over random", _over_random_cosine
    ),
    Reading("embedding_pca", "lag_order", "order of the rules in the embedding"),
)
"""What the verdict may go by, in the order of the probes."""


def many_keys(task: AnchorTask) -> list[int]:
    """The middle forty of the number tokens, or all where there are fewer."""
    start = max(0, (len(task.keys) - N_MANY) // 2)
    return task.keys[start : start + N_MANY].tolist()


def held_out_sequences(task: AnchorTask) -> Int[Tensor, "sequence pos"]:
    """Sequences of every trained pair with keys that are held out where they stand, 20 of each pair."""
    position = held_out_position(task)
    return random_sequences(task, task.seen_pairs, 20, key_position=position, keys="held out").tokens


def take_readings(model: HookedTransformer, task: AnchorTask) -> dict[str, float | None]:
    """Take every reading.

    Args:
        model: any HookedTransformer of two layers or more.
        task: what it was trained on.

    Returns:
        `probe.field` -> value; None where the probe has none for this model or task.

    Raises:
        ValueError: a probe refuses the model or the task, or its numbers do not converge, with the reason.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> readings = take_readings(build_model(ModelConfig(gamma=0.5)), AnchorTask())
        >>> readings["information_flow.margin"] < 0  # a random start does not know the answers
        True
    """
    results: dict[str, Any] = {}
    for name, (probe, options) in MEASURED.items():
        try:
            measure = probe if probe is pooled_routes else partial(probes.apply, probe)
            results[name] = measure(model, task, **options(task))
        except (ValueError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
            raise ValueError(f"{name}: {error}") from None
    values: dict[str, float | None] = {}
    for reading in READINGS:
        value = getattr(results[reading.measurement], reading.field)
        if value is not None and reading.normalise is not None:
            value = reading.normalise(value, model.cfg)
        values[reading.name] = None if value is None or not np.isfinite(value) else float(value)
    return values
