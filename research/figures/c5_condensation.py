"""Figure 5 of arXiv 2405.05409: the inferential solution has condensed, and orders the numbers.

    python research/figures/c5_condensation.py [--seed 0 1] [--suffix .png]

Claim: at a small initialisation the input weights of the neurons of the first layer's W_Q gather in few
directions, and the embedding of the numbers is ordered; at a large one neither is so.

Numbers: mean |cosine| of the neurons and in how many groups they fall, the stable rank of W_Q, and of the
embedding `lag_order` (how far tokens that differ by a difference of the shifts are nearer than others) and
the variance in the first two components. The cells are those of c2_gamma_depth.py at two layers; without them
the default trains six of 13 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorlens.extras.sweep import Cell
from anchorlens.probes import embedding_pca, q_condensation, stable_rank
from shared import common, solutions


def measure(cells: Sequence[Cell]) -> tuple[dict[str, Any], dict[str, solutions.Found]]:
    """Condensation and order by seed, and what the probes gave, by the picture's name."""
    found = {
        "c5_condensation": solutions.probed(cells, q_condensation),
        "c5_embedding": solutions.probed(cells, embedding_pca),
    }
    numbers = solutions.numbers(cells, *found.values(), solutions.probed(cells, stable_rank))
    numbers["variance_in_two_components"] = {
        name: {seed: sum(result.to_dict()["explained"]) for seed, result in by_seed.items()}
        for name, by_seed in found["c5_embedding"].items()
    }
    return numbers, found


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    given = common.options(__doc__).parse_args()
    cells = common.trained(given, solutions.solution_runs(given))
    numbers, found = measure(cells)
    common.write(given, "c5_condensation", solutions.pictures(cells, found), numbers)


if __name__ == "__main__":
    main()
