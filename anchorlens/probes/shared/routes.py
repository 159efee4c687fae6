"""The two routes from key and anchors to the answer: what is lost when a stage of one is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.probes.shared.edge_effects import margin

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

N_ROUTE_SEQUENCES = 280
"""Random sequences that the routes are averaged over: twenty of each of the papers' trained pairs."""

STAGES = ("key to anchors", "anchors to last", "anchors to last, early", "key to last")
"""Stages of the inferential route, then of the symmetric one."""


def routes(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    key: int,
    chain_length: int,
) -> tuple[float, float, dict[str, float | None]]:
    """How much of the margin is lost when each stage of a route is cut in all heads.

    Args:
        model: of two layers or more, whose attention hooks are alive.
        tokens: sequences with key and anchors at the same positions.
        targets: what they should be answered with.
        key: position of the key; the anchors follow it and end before the last position.
        chain_length: how many anchors.

    Returns:
        Mean margin in logits; the same when nobody attends to key and anchors but they themselves; and for
        each of `STAGES` the share 0..1 of the difference that is lost without it, None where the margin is
        not above 0 and above that baseline.
    """
    n_layers, last = model.cfg.n_layers, tokens.shape[1] - 1
    anchors = range(key + 1, key + 1 + chain_length)
    every, early, late = range(n_layers), range(n_layers - 1), range(1, n_layers)
    cuts = (
        (early, anchors, [key]),
        (late, [last], anchors),
        (early, [last], anchors),
        (late, [last], [key]),
    )
    hidden = [(every, range(position + 1, last + 1), [position]) for position in (key, *anchors)]
    clean = mean_margin(model, tokens, targets)
    baseline = mean_margin(model, tokens, targets, hidden)
    stages = no_stages()
    if clean > 0 and clean > baseline:
        for name, cut in zip(STAGES, cuts, strict=True):
            lost = (clean - mean_margin(model, tokens, targets, [cut])) / (clean - baseline)
            stages[name] = float(np.clip(lost, 0, 1))
    return clean, baseline, stages


def no_stages() -> dict[str, float | None]:
    """Every stage, with nothing known of it."""
    return dict.fromkeys(STAGES)


def mean_margin(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    cuts: Sequence[tuple[range, Sequence[int], Sequence[int]]] = (),
) -> float:
    """Mean margin with groups of edges zeroed in all heads.

    Args:
        model: whose attention hooks are alive.
        tokens: sequences.
        targets: what they should be answered with.
        cuts: (layers, queries, keys): every edge from one of the keys to one of the queries.
    """
    n_pos = tokens.shape[1]
    masks: dict[int, Tensor] = {}
    for layers, queries, keys in cuts:
        for layer in layers:
            mask = masks.setdefault(layer, torch.zeros(1, 1, n_pos, n_pos, dtype=torch.bool))
            mask[:, :, torch.tensor(list(queries))[:, None], torch.tensor(list(keys))] = True
    with hooks.masked_attention(model, masks):
        logits = hooks.last_logits(model, tokens)
    return margin(logits, targets.to(logits.device)).mean().item()
