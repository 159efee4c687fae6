"""The effect of every attention edge on the answer, which is the drop of the margin without the edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.models.running import device_of, measuring

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer


def margin(
    logits: Float[Tensor, "*batch d_vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return the logit of the target minus the largest other logit.

    The margin is above 0 if the answer is correct.

    >>> margin(torch.tensor([1.0, 3.0, 2.5]), torch.tensor(1)).item()
    0.5
    """
    index = targets.unsqueeze(-1)
    others = logits.scatter(-1, index, float("-inf"))
    return (logits.gather(-1, index).squeeze(-1) - others.max(dim=-1).values).double()


def causal_edges(
    n_heads: int, n_pos: int, *, last_only: bool, merged: bool
) -> Int[Tensor, "edge head_query_key"]:
    """Return (head, query, key) of every edge of a layer.

    Args:
        n_heads: the number of heads of the layer.
        n_pos: the number of positions.
        last_only: whether to list only the edges whose query is the last position. In the last layer, only
            these edges reach the answer.
        merged: whether an edge is cut in all heads at once. The result lists the head of a merged edge as 0.
    """
    heads, positions = torch.arange(1 if merged else n_heads, device="cpu"), torch.arange(n_pos, device="cpu")
    every = torch.cartesian_prod(heads, positions[-1:] if last_only else positions, positions)
    return every[every[:, 2] <= every[:, 1]]


def edge_masks(
    edges: Int[Tensor, "edge head_query_key"], n_heads: int, n_pos: int, *, merged: bool
) -> Bool[Tensor, "edge head_index query_pos key_pos"]:
    """Return a boolean mask for each edge, with `True` only at the edge.

    A merged mask has one head, which stands for all heads.
    """
    masks = torch.zeros(len(edges), 1 if merged else n_heads, n_pos, n_pos, dtype=torch.bool, device="cpu")
    masks[torch.arange(len(edges), device="cpu"), edges[:, 0], edges[:, 1], edges[:, 2]] = True
    return masks


def margins_without(
    model: HookedTransformer,
    residual: Float[Tensor, "batch pos d_model"],
    targets: Int[Tensor, " batch"],
    masks: Mapping[int, Bool[Tensor, "cut _ query_pos key_pos"]],
    *,
    start: int,
    patterns: Literal["frozen", "recomputed"],
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "cut batch"]]:
    """Compute the margins without a cut and with each of several cuts in one forward pass.

    Args:
        model: a model whose attention hooks can be edited.
        residual: the input of layer `start` for each sequence.
        targets: the correct answers.
        masks: for every layer from `start` on, one boolean mask for each cut. A mask is true where the cut
            zeroes the attention.
        start: the first layer of the pass.
        patterns: `frozen` or `recomputed` attention patterns in the layers after a cut, as for
            `hooks.cut_copies`.
    """
    n_copies = len(masks[start]) + 1
    with hooks.cut_copies(model, masks, patterns=patterns):
        copies = repeat(residual, "batch pos m -> (copy batch) pos m", copy=n_copies)
        logits = rearrange(
            model(copies, start_at_layer=start)[:, -1], "(copy batch) v -> copy batch v", copy=n_copies
        )
    clean, *cut = margin(logits, targets.expand(n_copies, -1))
    return clean, torch.stack(cut)


def drops(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    *,
    merged: bool,
    patterns: Literal["frozen", "recomputed"] = "frozen",
) -> Float[Tensor, "layer head_index query_pos key_pos"]:
    """Compute the mean drop of the target's logit margin after a cut of each edge.

    The drop is above 0 if the edge supports the target.

    The function computes the output of each layer once, and starts each pass at the layer of the edge. Memory
    holds the residual stream of one layer at a time. A pass measures as many edges as
    `hooks.sequences_per_batch` allows.

    Args:
        model: a model whose attention hooks can be edited.
        tokens: the sequences. The position of the key and of the anchors is the same in all sequences.
        targets: the correct answers.
        merged: whether to zero an edge in all heads at once. If `merged` is true, the result has one head.
        patterns: `frozen` or `recomputed` attention patterns in later layers, as for `hooks.cut_copies`.
    """
    n_layers, n_heads, n_pos = model.cfg.n_layers, model.cfg.n_heads, tokens.shape[1]
    size = hooks.sequences_per_batch(model, n_pos)
    total = torch.zeros(n_layers, 1 if merged else n_heads, n_pos, n_pos, dtype=torch.float64, device="cpu")
    empty = torch.zeros(1, 1, n_pos, n_pos, dtype=torch.bool, device="cpu")
    most = max(1, size // 8)  # sequences, so that at least seven cuts share one uncut copy
    for some_tokens, some_targets in zip(
        tokens.split(most), targets.to(device_of(model)).split(most), strict=True
    ):
        with measuring(model):
            residual = model(some_tokens.to(device_of(model)), stop_at_layer=0)  # [batch, pos, d_model]
            for layer in range(n_layers):
                edges = causal_edges(n_heads, n_pos, last_only=layer == n_layers - 1, merged=merged)
                for some in edges.split(max(1, size // len(some_tokens) - 1)):
                    masks = dict.fromkeys(range(layer, n_layers), empty.expand(len(some), -1, -1, -1))
                    masks[layer] = edge_masks(some, n_heads, n_pos, merged=merged)
                    clean, without = margins_without(
                        model, residual, some_targets, masks, start=layer, patterns=patterns
                    )
                    total[layer].index_put_(
                        tuple(some.T), (clean - without).sum(dim=1).cpu(), accumulate=True
                    )
                residual = model(residual, start_at_layer=layer, stop_at_layer=layer + 1)
    return total / len(tokens)
