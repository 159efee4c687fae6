"""Figures 4C and 4D of arXiv 2501.08537: answers without the key token, and without the second anchor.

    python research/figures/j4_masking.py [--seed 0 1 2] [--suffix .png]

Claims. Without the key token, answers form no clusters in Phase 1, one for each ordered anchor pair (12) in
Phase 2 without commutativity, and one for each unordered pair (6) in Phase 2 with it and in Phase 3.
Without the second anchor, answers in Phase 3 depend on g(x; a) alone: bright blocks on the diagonal.

Numbers: every cell of the grid of figure 3 that has a phase, by its label; where the grid has none of a
label, the cells of the label's preset. The pictures show, of each label, the cell whose number is the
median. The cosines of 4D are not in the JSON; `anchorlens probe mask_second_anchor CELL/ckpt.pt --json`
prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anchorlens.files.checkpoint import Checkpoint, load_checkpoint
from anchorlens.probes import Comparison, apply, mask_key_token, mask_second_anchor
from anchorlens.probes.shared.linalg import silhouette
from anchorlens.probes.two_anchor.mask_key_token import MaskKeyToken
from shared.common import options, trained, write
from shared.phases_grid import (
    SEEDS,
    Group,
    by_label,
    compare_typical,
    final,
    known_by_seed,
    labelled,
    main_runs,
)

STRUCTURE = 0.25
"""Silhouette below which there are no clusters to speak of (Kaufman and Rousseeuw, 1990)."""

EXPECTED = {
    "Phase 1": 0,
    "Phase 2 without commutativity": 12,
    "Phase 2 with commutativity": 6,
}
"""Label -> how many clusters figure 4C has without the key token; of Phase 3 it does not say."""


def without_key_token(checkpoint: Checkpoint) -> dict[str, float | None]:
    """The probe's numbers, and how many clusters there are."""
    result: Any = apply(mask_key_token, checkpoint, perplexity=None)
    return {**result.numbers(), "n_clusters": n_clusters(result)}


def n_clusters(result: MaskKeyToken) -> int:
    """Clusters of answers without the key token, by silhouette.

    None (0) where neither ordered nor unordered pairs cluster; else one for each pair and its mirror, or two
    where these two are clusters of their own.
    """
    found = (result.silhouette_ordered, result.silhouette_unordered)
    if max(value or 0 for value in found) < STRUCTURE:
        return 0
    group = result.labels // 2  # pairs come two by two, each with its mirror
    n = 0
    for each in np.unique(group):
        apart = silhouette(result.logits[group == each], result.labels[group == each])
        n += 2 if apart is not None and apart >= STRUCTURE else 1
    return n


def nearest(n: float) -> int | None:
    """Which of 0, 6 and 12 a number of clusters is nearest to; None where it is as near to two.

    >>> nearest(7), nearest(10), nearest(9)
    (6, 12, None)
    """
    first, second = sorted(set(EXPECTED.values()), key=lambda expected: abs(expected - n))[:2]
    return None if abs(first - n) == abs(second - n) else first


def measure_key(groups: Sequence[Group]) -> tuple[dict[str, Any], Comparison]:
    """Without the key token: the clusters in each phase, and the t-SNE of typical cells.

    `n_as_expected`: by seed, of how many cells the number of clusters is nearest to that of the papers.
    """
    found = [[without_key_token(load_checkpoint(final(cell))) for cell in group.cells] for group in groups]
    numbers = by_label(groups, found)
    for group, values in zip(groups, found, strict=True):
        if (expected := EXPECTED.get(group.label)) is None:
            continue
        as_expected = {
            seed: sum(nearest(n) == expected for n in found)
            for seed, found in known_by_seed(group, values, "n_clusters").items()
        }
        numbers[group.label] |= {"expected": expected, "n_as_expected": as_expected}
    comparison, shown = compare_typical(groups, "mask_key_token", "mirror_merge", found)
    for group, result in zip(groups, comparison.results, strict=True):
        content = result.to_dict()
        numbers[group.label]["tsne"] = {name: content[name] for name in ("pairs", "labels", "points")}
    return {**shown, "clusters_from_silhouette": STRUCTURE, "by_label": numbers}, comparison


def measure_second_anchor(groups: Sequence[Group]) -> tuple[dict[str, Any], Comparison]:
    """Without the second anchor: whether equal g(x; a) gives like answers, in each phase.

    The cells of Phase 3 at the largest gamma are shown once more by themselves: a model may compose in two
    ways, and it is there that it takes the one that leaves blocks (docs/probes/mask_second_anchor.md).
    """
    composing = [group for group in groups if group.label == "Phase 3"]
    groups = [*groups, *(group.at_largest_gamma() for group in composing)]
    found = [
        [apply(mask_second_anchor, load_checkpoint(final(cell))).numbers() for cell in group.cells]
        for group in groups
    ]
    comparison, shown = compare_typical(groups, "mask_second_anchor", "centred_gap", found)
    return {**shown, "by_label": by_label(groups, found)}, comparison


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = options(__doc__, seeds=SEEDS).parse_args()
    groups = labelled(given, trained(given, main_runs(given)))
    key, without_key = measure_key(groups)
    second, without_second = measure_second_anchor(groups)
    pictures = {"j4c_mask_key": without_key.plot(), "j4d_mask_second_anchor": without_second.plot()}
    write(given, "j4_masking", pictures, {"key_token": key, "second_anchor": second})


if __name__ == "__main__":
    main()
