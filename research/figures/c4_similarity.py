"""Figure 4 of arXiv 2405.05409: what looks alike inside the two solutions.

    python research/figures/c4_similarity.py [--seed 0 1] [--suffix .png]

Claim: in the inferential solution inputs of equal targets look alike at the last position once attention is
done (`fusion_similarity`: (x; 3, 3) and (y; 2, 2), (x; 1, 2) and (y; 1, 3)), and so do the values at the
first anchor of keys and anchors with equal single-anchor results g(x; a) (`v_similarity`). In the symmetric
solution they do not.

Numbers: the mean cosine where the targets (results) are equal minus that where they are not, with the common
direction taken away (`centred_gap`) and without. The cells are those of c2_gamma_depth.py at two layers;
without them the default trains six of 13 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorlens.extras.sweep import Cell
from anchorlens.probes import fusion_similarity, v_similarity
from shared import common, solutions


def measure(cells: Sequence[Cell]) -> tuple[dict[str, Any], dict[str, solutions.Found]]:
    """The gaps by seed, and what the probes gave, by the picture's name."""
    found = {
        "c4_fusion_similarity": solutions.probed(cells, fusion_similarity),
        "c4_v_similarity": solutions.probed(cells, v_similarity),
    }
    return solutions.numbers(cells, *found.values()), found


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = common.options(__doc__).parse_args()
    cells = common.trained(given, solutions.solution_runs(given))
    numbers, found = measure(cells)
    common.write(given, "c4_similarity", solutions.pictures(cells, found), numbers)


if __name__ == "__main__":
    main()
