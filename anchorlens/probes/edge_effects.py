"""What every single attention edge does to the answer: it is zeroed, and the margin measured again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens import hooks

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

Layers = Mapping[int, Bool[Tensor, "edge head_index query_pos key_pos"]]


def margin(
    logits: Float[Tensor, "*batch d_vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Logit of the target minus the largest other; above 0 where the answer is right.

    >>> margin(torch.tensor([1.0, 3.0, 2.5]), torch.tensor(1)).item()
    0.5
    """
    index = targets.unsqueeze(-1)
    others = logits.scatter(-1, index, float("-inf"))
    return (logits.gather(-1, index).squeeze(-1) - others.max(dim=-1).values).double()


def causal_edges(
    n_heads: int, n_pos: int, *, last_only: bool, merged: bool
) -> tuple[Bool[Tensor, "edge head_index query_pos key_pos"], list[tuple[int, int, int]]]:
    """One mask for each edge of a layer, and its (head, query, key).

    Args:
        n_heads: heads of the layer.
        n_pos: tokens.
        last_only: only the last position's edges: of the last layer no other reaches the answer.
        merged: an edge is that of all heads at once (head 0 stands for them).
    """
    queries = [n_pos - 1] if last_only else range(n_pos)
    heads = [0] if merged else range(n_heads)
    index = [(head, query, key) for head in heads for query in queries for key in range(query + 1)]
    masks = torch.zeros(len(index), n_heads, n_pos, n_pos, dtype=torch.bool)
    for row, (head, query, key) in enumerate(index):
        masks[row, slice(None) if merged else head, query, key] = True
    return masks, index


def drops(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    *,
    merged: bool,
) -> Float[Tensor, "layer head_index query_pos key_pos"]:
    """Mean drop of the target's margin when each edge alone is zeroed; above 0 where the edge helps.

    The blocks below an edge are not computed again: their output is taken from one pass. Edges are
    taken in groups that keep a pass within `hooks.sequences_per_batch`.

    Args:
        model: whose attention hooks are alive.
        tokens: sequences with key and anchors at the same positions.
        targets: what they should be answered with.
        merged: zero an edge in all heads at once; the result then has one head.
    """
    n_layers, n_heads, n_pos = model.cfg.n_layers, model.cfg.n_heads, tokens.shape[1]
    effect = torch.zeros(n_layers, 1 if merged else n_heads, n_pos, n_pos, dtype=torch.float64)
    at_once = max(1, hooks.sequences_per_batch(model, n_pos) // len(tokens))
    device = hooks.device_of(model)
    tokens, targets = tokens.to(device), targets.to(device)
    with hooks.measuring(model):
        with inputs_of_blocks(model) as inputs:
            clean = margin(model(tokens)[:, -1], targets)  # [batch]
        for layer in range(n_layers):
            masks, index = causal_edges(n_heads, n_pos, last_only=layer == n_layers - 1, merged=merged)
            for start in range(0, len(index), at_once):
                some = masks[start : start + at_once].to(device)
                residual = inputs[layer].repeat(len(some), 1, 1)  # [edge batch, pos, d_model]
                with hooks.masked_attention(model, {layer: some.repeat_interleave(len(tokens), dim=0)}):
                    logits = model(residual, start_at_layer=layer)[:, -1]
                without = margin(logits, targets.repeat(len(some))).unflatten(0, (len(some), -1))
                found = (clean - without).mean(dim=1).cpu()  # [edge]
                head, query, key = torch.tensor(index[start : start + at_once]).unbind(dim=1)
                effect[layer, head, query, key] = found
    return effect


@contextlib.contextmanager
def inputs_of_blocks(model: HookedTransformer) -> Iterator[list[Float[Tensor, "batch pos d_model"]]]:
    """What each block is given, in order, before any hook of the block: where a pass can start again."""
    inputs: list[Tensor] = []

    def keep(module: Any, args: tuple[Any, ...]) -> None:
        inputs.append(args[0].detach().clone())

    handles = []
    try:
        handles.extend(block.register_forward_pre_hook(keep) for block in model.blocks)
        yield inputs
    finally:
        for handle in handles:
            handle.remove()


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
