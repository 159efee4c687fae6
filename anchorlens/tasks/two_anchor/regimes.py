"""The papers' regimes: the pairs they leave untrained, and what they train instead of the composition."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from anchorlens.tasks.two_anchor.anchor_functions import AnchorFunction
from anchorlens.tasks.two_anchor.sequences import Pair

PAPER_SHIFTS: dict[int, AnchorFunction] = {1: +5, 2: +1, 3: -2, 4: -8}
CONFLICT_SHIFT = -6
"""What (3, 4) is trained on in the `conflict` regime; its true total shift is -10 (2405.05409)."""

COMPLEXITY_SHIFTS: tuple[tuple[Pair, int], ...] = (
    ((1, 2), +4),
    ((1, 3), +1),
    ((1, 4), -5),
    ((2, 3), +5),
    ((2, 4), -9),
    ((3, 4), -6),
)
"""Wrong but symmetric total shifts, in the order in which reasoning complexity breaks the groups."""


def unseen_and_overrides(
    regime: str, complexity: int | None, anchors: Mapping[int, AnchorFunction], pairs: Sequence[Pair]
) -> tuple[list[Pair], dict[Pair, AnchorFunction]]:
    """Return the unseen pairs and the overrides of a regime or a reasoning complexity.

    Args:
        regime: the regime, `reasoning` or `conflict`.
        complexity: the reasoning complexity, 0..6, or None to use the overrides of the regime.
        anchors: a map from each anchor token to its function, in ascending order of tokens.
        pairs: the anchor pairs (chains) of the task.

    Raises:
        ValueError: If `regime` is `conflict`, and the anchors or pairs are not the papers' anchors and pairs.
        ValueError: If `complexity` is set, and the regime is `conflict`, or the anchors or pairs are not the
            papers' anchors and pairs.
    """
    is_papers = len(pairs[0]) == 2 and dict(anchors) == PAPER_SHIFTS
    if complexity is not None:
        if regime != "reasoning" or not is_papers:
            raise ValueError(
                "complexity must be None unless the task has the papers' four anchors and pairs and the "
                f"regime 'reasoning', got {complexity}. Give overrides and unseen_pairs instead"
            )
        broken = COMPLEXITY_SHIFTS[:complexity]
        return [], {pair: shift for (a, b), shift in broken for pair in ((a, b), (b, a))}
    if regime == "reasoning":  # every chain with the two as neighbours; for pairs, just the two
        first, second = list(anchors)[-2:]
        mirrored = {(first, second), (second, first)}
        return [pair for pair in pairs if mirrored & set(itertools.pairwise(pair))], {}
    if not is_papers:
        raise ValueError(
            "anchors must be the papers' four anchors in the regime 'conflict', got other anchors. Use the "
            "regime 'reasoning' with unseen_pairs and overrides"
        )
    return [(4, 3)], {(3, 4): CONFLICT_SHIFT}
