"""Sentences on what a plot shows about a model, from the values of the result."""

from __future__ import annotations

from collections.abc import Collection
from functools import singledispatch

from anchorlens.probes.any_model.embedding_pca import EmbeddingPCA
from anchorlens.probes.any_model.q_condensation import QCondensation
from anchorlens.probes.shared.clusters import groups_apart
from anchorlens.probes.shared.result import ProbeResult
from anchorlens.probes.two_anchor.information_flow import InformationFlow
from anchorlens.probes.two_anchor.mask_key_token import MaskKeyToken
from anchorlens.probes.two_anchor.v_similarity import VSimilarity
from anchorlens.show.words import number
from anchorlens.tasks.two_anchor.evaluation import PairAccuracy

CLEAR, FAINT = 0.3, 0.1
"""The bounds of a route score or of a gap between cosines. A route or gap is clear from the first bound on,
and absent below the second bound."""
WAYS = {
    "inferential": "the key goes to each anchor, and each anchor to the last position",
    "symmetric": "the anchors go to the last position first, then the key",
    "gathered": "key and anchors meet at the last anchor, and the last position reads the answer from there",
}
"""The description of each route."""


@singledispatch
def describe_plot(result: ProbeResult) -> str:
    """Return a sentence on what the plot of a result shows about the model. Default: the headline."""
    return result.headline()


@describe_plot.register
def _(result: MaskKeyToken) -> str:
    if result.points is None:
        return result.headline()
    labels, n_pairs = list(range(len(result.pairs))), len(result.pairs) // 2
    groups = groups_apart(result.points, result.labels)
    together = sum(any({label, label + 1} <= group for group in groups) for label in labels[::2])
    if len(groups) == 1:
        return "There are no clusters: the answers of all pairs overlap."
    n = f"{len(groups)} clusters of {len(labels)} ordered pairs"
    if together == n_pairs:
        return (
            f"{n}: every pair shares a cluster with its reversed pair, so the order of the anchors makes "
            f"no difference."
        )
    if not together:
        return f"{n}: no pair shares a cluster with its reversed pair, so the answers depend on the order."
    return f"{n}: {together} of {n_pairs} pairs share a cluster with their reversed pairs; the others do not."


@describe_plot.register
def _(result: InformationFlow) -> str:
    known = {name: score for name in WAYS if (score := getattr(result, f"{name}_route")) is not None}
    if not known:
        return f"{result.headline()}; the lines show attention only."
    numbers = ", ".join(f"{name} {score:.2f}" for name, score in known.items())
    best = max(known, key=known.__getitem__)
    if known[best] < FAINT:
        return f"No single route carries the answer ({numbers})."
    certain = "The" if known[best] >= CLEAR else "Mostly the"
    why = _why_not_inferential(result) if best == "gathered" else ""
    return f"{certain} {best} route: {WAYS[best]} ({numbers}).{why}"


def _why_not_inferential(result: InformationFlow) -> str:
    """Return the stage of the inferential route that a model on the gathered route does not need."""
    stages = [(lost, name) for name, lost in result.stages["inferential"].items() if lost is not None]
    least, stage = min(stages, key=lambda item: item[0], default=(FAINT, ""))
    if least >= FAINT:
        return ""
    return (
        f" The inferential score of {result.inferential_route:.2f} is low because nothing is lost without "
        f"{stage}: the last anchor already holds the key and the anchors."
    )


@describe_plot.register
def _(result: VSimilarity) -> str:
    if result.centred_gap is None:
        return result.headline()
    gap = round(result.centred_gap, 2) + 0.0  # no -0.00
    if gap >= CLEAR:
        return f"Boxed cells are redder by {gap:.2f}: the values at the first anchor encode g(x; a)."
    if gap >= FAINT:
        return f"Boxed cells are redder by {gap:.2f}: the values partly encode g(x; a)."
    return (
        f"Boxed cells are similar to the others ({number(gap, '.2f')} redder): the values do not "
        f"encode g(x; a)."
    )


@describe_plot.register
def _(result: QCondensation) -> str:
    n = len(result.order)
    share = result.n_groups / n
    words = "condensed" if share < 0.5 else "partly condensed" if share < 0.9 else "hardly condensed"
    return f"{n} neurons in {result.n_groups} groups, mean |cosine| {result.mean_abs_cosine:.2f}: {words}."


@describe_plot.register
def _(result: EmbeddingPCA) -> str:
    if result.lag_order is None:
        return f"{result.explained.sum():.0%} of the variance lies along the two plotted axes."
    gap = number(result.lag_order, ".2f")
    if result.lag_order >= FAINT:
        return f"Orange bars are higher by {gap}: the embedding follows the differences of the shifts."
    if result.lag_order >= FAINT / 4:
        return f"Orange bars are higher by {gap}: the embedding weakly follows the differences of the shifts."
    return (
        f"Orange bars are not higher than grey bars ({gap}): the embedding does not follow the "
        f"differences of the shifts."
    )


def pairs_seen(pairs: Collection[PairAccuracy]) -> str:
    """Return a sentence on the lowest and highest accuracy on trained pairs and on unseen pairs."""
    parts = []
    for split, words in (("id", "trained pairs, with held-out keys"), ("ood", "unseen pairs (boxed)")):
        if values := [pair.accuracy.value for pair in pairs if pair.split == split]:
            low, high = f"{min(values):.2f}", f"{max(values):.2f}"
            parts.append(f"{words}: {low if low == high else f'{low} to {high}'}")
    return f"{'; '.join(parts)}."
