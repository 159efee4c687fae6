"""How hard the unseen pairs of a task are: what a table of its trained pairs alone can say of its phase."""

from __future__ import annotations

import numpy as np

from anchorlens import AnchorTask
from anchorlens.tasks.two_anchor.anchor_functions import applied


def difficulty(task: AnchorTask) -> dict[str, float]:
    """Two numbers of the unseen pairs, the hardest of them.

    Returns:
        `difficulty.support`: how many trained, composed pairs have the first anchor of the unseen pair at the
        first place, or the second at the second, whichever are fewer; `difficulty.distance`: the median
        distance, in tokens, between the function of one of its anchors and the nearest other function.
    """
    composed = task.composed_pairs
    support = min(
        min(sum(other[k] == pair[k] for other in composed) for k in range(task.chain_length))
        for pair in task.ood_pairs
    )
    values = {anchor: applied(function, task.keys) for anchor, function in task.anchors.items()}
    distance = min(
        float(np.median(np.abs(values[anchor] - values[other])))
        for pair in task.ood_pairs
        for anchor in pair
        for other in task.anchors
        if other != anchor
    )
    return {"difficulty.support": float(support), "difficulty.distance": distance}
