"""Figures 4C and 4D of arXiv 2501.08537: answers without the key token, and without the second anchor.

    python examples/figures/j4_masking.py [--seed 0 1 2] [--suffix .png]

Claims. Without the key token, answers form no clusters in Phase 1, one for each ordered anchor pair (12) in
Phase 2 without commutativity, and one for each unordered pair (6) in Phase 2 with it and in Phase 3. Without the
second anchor, answers in Phase 3 depend on g(x; a) alone: bright blocks on the diagonal.

Numbers: every cell of the grid of figure 3 that has a phase, by its label; where the grid has none of a label,
the cells of the label's preset. The pictures show, of each label, the cell whose number is the median. The
cosines of 4D are not in the JSON; `anchorlens probe mask_second_anchor CELL/ckpt.pt --json` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchorlens.checkpoint import load_checkpoint
from anchorlens.probes import apply_to_checkpoint, probe_named
from anchorlens.probes.compare import Comparison
from common import options, trained, write
from ordering import share_above
from phases_grid import (
    SEEDS,
    Group,
    by_label,
    compare_typical,
    final,
    labelled,
    main_runs,
)

Numbers = Mapping[str, float | None]

STRUCTURE = 0.25
"""Silhouette below which there are no clusters to speak of (Kaufman and Rousseeuw, 1990)."""

EXPECTED = {
    "Phase 1": "none",
    "Phase 2 without commutativity": "ordered",
    "Phase 2 with commutativity": "unordered",
    "Phase 3": "unordered",
}
"""Label -> the clusters that the papers say its answers form without the key token."""


def readings(groups: Sequence[Group], probe: str, **asked: Any) -> list[list[Numbers]]:
    """The numbers of a probe, of every cell of every group."""
    return [
        [
            apply_to_checkpoint(probe_named(probe), load_checkpoint(final(cell)), **asked).numbers()
            for cell in group.cells
        ]
        for group in groups
    ]


def clusters(numbers: Numbers) -> str:
    """Which anchor pairs the answers tell apart: `ordered` ones, `unordered` ones or `none`, by silhouette.

    >>> clusters({"silhouette_ordered": 0.3, "silhouette_unordered": 0.6})
    'unordered'
    >>> clusters({"silhouette_ordered": 0.1, "silhouette_unordered": None})
    'none'
    """
    found = {name: numbers[f"silhouette_{name}"] for name in ("ordered", "unordered")}
    clear = {name: value for name, value in found.items() if value is not None and value >= STRUCTURE}
    return max(clear, key=lambda name: clear[name]) if clear else "none"


def measure_key(groups: Sequence[Group]) -> tuple[dict[str, Any], Comparison]:
    """Without the key token: the clusters in each phase, and the t-SNE of typical cells."""
    found = readings(groups, "mask_key_token", perplexity=None)
    numbers = by_label(groups, found)
    for group, values in zip(groups, found, strict=True):
        kinds = [clusters(each) for each in values]
        numbers[group.label] |= {
            "expected": EXPECTED[group.label],
            "n_as_expected": kinds.count(EXPECTED[group.label]),
            "n_by_clusters": {kind: kinds.count(kind) for kind in ("none", "ordered", "unordered")},
        }
    comparison, shown = compare_typical(groups, "mask_key_token", "mirror_merge", found)
    for group, result in zip(groups, comparison.results, strict=True):
        content = result.to_dict()
        numbers[group.label]["tsne"] = {name: content[name] for name in ("pairs", "labels", "points")}
    return {**shown, "clusters_from_silhouette": STRUCTURE, "by_label": numbers}, comparison


def measure_second_anchor(groups: Sequence[Group]) -> tuple[dict[str, Any], Comparison]:
    """Without the second anchor: whether equal g(x; a) gives like answers, in each phase.

    `phase_3_larger`: the share of the pairs (cell of Phase 3, cell of another label) in which that of Phase 3
    has the larger gap, 0..1; .5 by chance.
    """
    found = readings(groups, "mask_second_anchor")
    gaps = {
        group.label: [gap for each in values if (gap := each["centred_gap"]) is not None]
        for group, values in zip(groups, found, strict=True)
    }
    composing = gaps.pop("Phase 3", [])
    comparison, shown = compare_typical(groups, "mask_second_anchor", "centred_gap", found)
    larger = {label: share_above(composing, values) for label, values in gaps.items()}
    return {**shown, "phase_3_larger": larger, "by_label": by_label(groups, found)}, comparison


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
