"""The two routes with anchors pooled and later patterns recomputed, as the early verdict was fit on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorlens.models import hooks
from anchorlens.probes.shared.anchor_sequences import checked_sequences, default_sequence, trained_sequences
from anchorlens.probes.shared.routes import N_ROUTE_SEQUENCES, Edges, shares
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


@dataclass(frozen=True)
class PooledRoutes:
    """Route scores that do not ask for each anchor by itself: 0..1, None where there is no margin to lose."""

    inferential_route: float | None
    """The smaller share lost without key to anchors (all layers but the last), anchors to last (all but the
    first)."""
    symmetric_route: float | None
    """The same of anchors to last (all layers but the last) and key to last (all but the first)."""


def pooled_routes(model: HookedTransformer, task: AnchorTask) -> PooledRoutes:
    """Both scores over 280 sequences of the trained pairs.

    What is gathered at one anchor counts as inferential; `information_flow` asks each anchor by
    itself. The early verdict was fit on these, and goes by them still.

    Raises:
        ValueError: a dead hook.
    """
    _, key = checked_sequences(task, default_sequence(task))
    batch = trained_sequences(task, N_ROUTE_SEQUENCES, key_position=key)
    hooks.assert_live(model, tokens=batch.tokens[:4])
    early, late = range(model.cfg.n_layers - 1), range(1, model.cfg.n_layers)
    anchors, at_key = range(key + 1, key + 1 + task.chain_length), range(key, key + 1)
    last = range(task.seq_len - 1, task.seq_len)
    inferential: tuple[Edges, ...] = (early, anchors, at_key), (late, last, anchors)
    symmetric: tuple[Edges, ...] = (early, last, anchors), (late, last, at_key)
    groups = (*inferential, *symmetric)
    _, lost = shares(model, batch.tokens, batch.targets, key, anchors, groups, "recomputed")
    if None in lost.values():
        return PooledRoutes(None, None)
    return PooledRoutes(*(min(lost[edges] or 0 for edges in route) for route in (inferential, symmetric)))
