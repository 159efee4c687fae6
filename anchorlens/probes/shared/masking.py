"""Code that the two masking probes share, which zeroes attention and computes the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens.configuration import check_choice
from anchorlens.models import hooks
from anchorlens.probes.shared.checks import whole_numbers
from anchorlens.probes.shared.clusters import finite_rows

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

Queries = Literal["all", "last"]
Edge = tuple[int, int, int, int]
"""An attention edge (layer, head, query position, key position), with each index counted from 0."""


def masked_logits(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    positions: Sequence[int],
    queries: Queries,
    edge: Edge | None,
) -> Float[np.ndarray, "batch d_vocab"]:
    """Compute the logits of the last position with some attention zeroed after the softmax.

    Args:
        model: a model whose attention hooks can be edited.
        tokens: the sequences.
        positions: the key positions to which attention is zeroed.
        queries: the queries whose attention is zeroed in every layer and head, `all` or only the `last`.
        edge: a single edge to zero, instead of `positions` and `queries`.

    Raises:
        ValueError: If a hook cannot be edited.
        ValueError: If the edge does not exist.
        ValueError: If the logits are not finite.
    """
    check_choice("queries", queries, ("all", "last"))
    n_pos = tokens.shape[1]
    if edge is None:
        query = n_pos - 1 if queries == "last" else None
        by_position = [hooks.attention_masks(model, n_pos, key=key, query=query) for key in positions]
        masks = {
            layer: torch.stack([mask[layer] for mask in by_position]).any(dim=0) for layer in by_position[0]
        }
    else:
        layer, head, query, key = edge
        masks = hooks.attention_masks(model, n_pos, layer=layer, head=head, query=query, key=key)
    hooks.assert_live(model, tokens=tokens[:: max(1, len(tokens) // 4)])
    with hooks.masked_attention(model, masks):
        return finite_rows(hooks.last_logits(model, tokens))


def checked_edge(edge: object) -> Edge | None:
    """Check the single edge that a caller gave, and return the edge, or `None` if no edge is given.

    Raises:
        ValueError: If the edge is not (layer, head, query position, key position).
    """
    if edge is None:
        return None
    layer, head, query, key = whole_numbers("edge (layer, head, query position, key position)", edge, 4)
    return layer, head, query, key


def describe(what: str, queries: Queries, edge: Edge | None) -> str:
    """Return the part of a title that describes the masked attention.

    >>> describe("key token", "last", None)
    'key token masked for the last query'
    """
    if edge is not None:
        layer, head, query, key = edge
        return f"layer {layer}, head {head}: {query} no longer attends to {key}"
    return f"{what} masked" + (" for the last query" if queries == "last" else "")
