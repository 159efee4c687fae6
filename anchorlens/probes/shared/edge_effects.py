"""Cuts of attention edges: the effect of every edge on the answer, and the routes that edges form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.running import device_of, measuring


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


def causal_edges(n_heads: int, n_pos: int, *, last_only: bool) -> Int[Tensor, "edge head_query_key"]:
    """Return (head, query, key) of every edge of a layer.

    Args:
        n_heads: the number of heads of the layer, or 1 for edges that are cut in all heads at once.
        n_pos: the number of positions.
        last_only: whether to list only the edges whose query is the last position. In the last layer, only
            these edges reach the answer.
    """
    heads, positions = torch.arange(n_heads, device="cpu"), torch.arange(n_pos, device="cpu")
    every = torch.cartesian_prod(heads, positions[-1:] if last_only else positions, positions)
    return every[every[:, 2] <= every[:, 1]]


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

    A pass measures as many edges of one layer as `hooks.sequences_per_batch` allows.

    Args:
        model: a model whose attention hooks can be edited.
        tokens: the sequences. The position of the key and of the anchors is the same in all sequences.
        targets: the correct answers.
        merged: whether to zero an edge in all heads at once. If `merged` is true, the result has one head.
        patterns: `frozen` or `recomputed` attention patterns in later layers, as for `hooks.cut_copies`.
    """
    n_layers, n_pos = model.cfg.n_layers, tokens.shape[1]
    n_heads = 1 if merged else model.cfg.n_heads
    size = hooks.sequences_per_batch(model, n_pos)
    n_together = min(len(tokens), max(1, size // 8))  # at least seven cuts share one uncut copy
    found = torch.zeros(n_layers, n_heads, n_pos, n_pos, dtype=torch.float64, device="cpu")
    for layer in range(n_layers):
        edges = causal_edges(n_heads, n_pos, last_only=layer == n_layers - 1)
        for some in edges.split(max(1, size // n_together - 1)):
            masks = torch.zeros(len(some), *found.shape[1:], dtype=torch.bool, device="cpu")
            masks[torch.arange(len(some), device="cpu"), *some.T] = True
            margins = mean_margins(model, tokens, targets, {layer: masks}, patterns)
            clean, without = margins.tensor_split([1])
            found[layer, *some.T] = clean - without
    return found


N_ROUTE_SEQUENCES = 280
"""The number of random sequences for the average, which is twenty for each trained pair of the papers."""
N_TO_CHOOSE = 28
"""The number of first sequences that determine the border between early and late layers."""
MOST_MEETINGS = 9
"""The largest number of borders to try. The borders are evenly spread. In a model of at most ten layers, the
function tries every border."""
CUTS_AT_ONCE = 15
"""The largest number of cuts in one pass. The cuts of a pass share one uncut copy of the sequences."""

Edges = tuple[range, range, range]
"""A group of edges (layers, queries, keys), which contains every edge from a key to a query in all heads."""


def stages(anchors: range, last: int, n_layers: int, late_from: int) -> dict[str, dict[str, Edges]]:
    """Return the edges of each stage of each route.

    Each stage lies either in the early layers or in the late layers.

    Args:
        anchors: the positions of the anchors, which follow the key.
        last: the last position.
        n_layers: the number of layers of the model.
        late_from: the first late layer.
    """
    early, late = range(late_from), range(late_from, n_layers)
    key, n = range(anchors[0] - 1, anchors[0]), len(anchors)
    at, end = [range(anchor, anchor + 1) for anchor in anchors], range(last, last + 1)
    to_anchors = {"key to anchors": (early, anchors, key)}
    return {
        "inferential": to_anchors | {f"anchor {i + 1} to last": (late, end, at[i]) for i in range(n)},
        "symmetric": {f"anchor {i + 1} to last": (early, end, at[i]) for i in range(n)}
        | {"key to last": (late, end, key)},
        "gathered": to_anchors
        | {f"anchor {i + 1} to later anchors": (early, anchors[i + 1 :], at[i]) for i in range(n - 1)}
        | {f"anchor {n} to last": (late, end, at[-1])},
    }


@dataclass(frozen=True)
class Routes:
    """The baseline margin, the lost fraction for each stage, and the first late layer of each route."""

    baseline: float | None
    """The mean margin when no later position attends to the key or an anchor."""
    stages: dict[str, dict[str, float | None]]
    """The fraction of the margin above the baseline that is lost without each stage of each route, from 0 to
    1. The fraction is `None` unless the margin is above 0 and above the baseline."""
    late_from: dict[str, int]
    """The first late layer of each route."""


def routes(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    key: int,
    chain_length: int,
    patterns: Literal["frozen", "recomputed"] = "frozen",
) -> Routes:
    """Measure the fraction of the margin that is lost when each stage of a route is cut in all heads.

    In a model of two layers, layer 0 is early and layer 1 is late. In deeper models, the function chooses the
    border between early and late layers separately for each route. The chosen border maximises the smallest
    fraction over the stages of the route. The function measures these fractions on the first `N_TO_CHOOSE`
    sequences.

    Args:
        model: a model of two layers or more whose attention hooks can be edited.
        tokens: the sequences. The position of the key and of the anchors is the same in all sequences.
        targets: the correct answers.
        key: the position of the key. The anchors follow the key and end before the last position.
        chain_length: the number of anchors.
        patterns: `frozen` or `recomputed` attention patterns in later layers, as for `hooks.cut_copies`.
    """
    n_layers, anchors = model.cfg.n_layers, range(key + 1, key + 1 + chain_length)
    meetings = np.linspace(1, n_layers - 1, min(MOST_MEETINGS, n_layers - 1)).round().astype(int).tolist()
    options = {s: stages(anchors, tokens.shape[1] - 1, n_layers, s) for s in meetings}
    names = options[1].keys()
    late_from = dict.fromkeys(names, 1)
    if len(options) > 1:
        every = [edges for split in options.values() for route in split.values() for edges in route.values()]
        _, lost = shares(model, tokens[:N_TO_CHOOSE], targets[:N_TO_CHOOSE], key, anchors, every, patterns)
        for name in names:
            late_from[name] = max(
                options, key=lambda s, name=name: min(lost[edges] or 0 for edges in options[s][name].values())
            )
    chosen = {name: options[late_from[name]][name] for name in names}
    every = [edges for route in chosen.values() for edges in route.values()]
    baseline, lost = shares(model, tokens, targets, key, anchors, every, patterns)
    found = {name: {stage: lost[edges] for stage, edges in route.items()} for name, route in chosen.items()}
    return Routes(baseline, found, late_from)


def shares(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    key: int,
    anchors: range,
    groups: Sequence[Edges],
    patterns: Literal["frozen", "recomputed"],
) -> tuple[float, Mapping[Edges, float | None]]:
    """Compute the baseline, and the fraction of the margin that is lost without each group of edges.

    The fraction is the lost margin divided by the margin above the baseline.
    """
    n_layers, n_pos = model.cfg.n_layers, tokens.shape[1]
    hidden = [(range(n_layers), range(at + 1, n_pos), range(at, at + 1)) for at in (key, *anchors)]
    groups = list(dict.fromkeys(groups))
    cuts = [hidden, *([group] for group in groups)]
    at_once = max(1, min(CUTS_AT_ONCE, hooks.sequences_per_batch(model, n_pos) - 1))
    clean, margins = 0.0, []
    for first in range(0, len(cuts), at_once):
        masks = group_masks(cuts[first : first + at_once], n_layers, n_pos)
        clean, *some = mean_margins(model, tokens, targets, masks, patterns).tolist()
        margins += some
    baseline, *without = margins
    if not clean > max(0, baseline):
        return baseline, dict.fromkeys(groups)
    lost = np.clip((clean - np.array(without)) / (clean - baseline), 0, 1)
    return baseline, dict(zip(groups, lost.tolist(), strict=True))


def mean_margins(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    masks: Mapping[int, Bool[Tensor, "cut _ query_pos key_pos"]],
    patterns: Literal["frozen", "recomputed"],
) -> Float[Tensor, " cut_and_one"]:
    """Compute the mean margin without a cut, and then with each cut.

    Args:
        model: a model whose attention hooks can be edited.
        tokens: the sequences.
        targets: the correct answers.
        masks: the masks of each layer with a cut, true where a cut zeroes the attention. They have one head
            for all heads, or as many heads as the model.
        patterns: `frozen` or `recomputed` attention patterns after a cut, as for `hooks.cut_copies`.
    """
    n_pos, n_cuts = tokens.shape[1], len(next(iter(masks.values())))
    no_cut = torch.zeros(n_cuts, 1, n_pos, n_pos, dtype=torch.bool, device="cpu")
    of_layers = [masks.get(layer, no_cut) for layer in range(model.cfg.n_layers)]
    first_layers = torch.stack([mask.flatten(1).any(dim=1) for mask in of_layers]).int().argmax(dim=0)
    order = first_layers.argsort(stable=True)
    size = max(1, hooks.sequences_per_batch(model, n_pos) // (n_cuts + 1))
    parts = []
    for some_tokens, some_targets in zip(tokens.split(size), targets.split(size), strict=True):
        with measuring(model):
            residual = model(some_tokens.to(device_of(model)), stop_at_layer=0)
            for layer, mask in enumerate(of_layers):  # a cut has no separate copy before its first layer
                uncut, begun = residual[: len(some_tokens)], order[first_layers[order] <= layer]
                n_new = len(begun) + 1 - len(residual) // len(uncut)
                residual = torch.cat([residual, uncut.repeat(n_new, 1, 1)])
                stop = layer + 1 if layer + 1 < len(of_layers) else None
                with hooks.cut_copies(model, {layer: mask[begun]}, patterns=patterns):
                    residual = model(residual, start_at_layer=layer, stop_at_layer=stop)
            logits = rearrange(residual[:, -1], "(copy batch) v -> copy batch v", batch=len(some_tokens))
            parts.append(margin(logits, some_targets.to(logits.device).expand(len(logits), -1)))
    means = torch.cat(parts, dim=1).mean(dim=1).cpu()
    return torch.cat([means[:1], means[1:][order.argsort()]])


def group_masks(
    cuts: Sequence[Sequence[Edges]], n_layers: int, n_pos: int
) -> dict[int, Bool[Tensor, "cut 1 query_pos key_pos"]]:
    """Return masks for each layer, true where a cut, of one or several groups, zeroes all heads."""
    masks = torch.zeros(n_layers, len(cuts), 1, n_pos, n_pos, dtype=torch.bool, device="cpu")
    for cut, groups in enumerate(cuts):
        for group in groups:
            layers, queries, keys = (slice(places.start, places.stop) for places in group)
            masks[layers, cut, 0, queries, keys] = True
    return dict(enumerate(masks))
