"""Figure 3 of arXiv 2405.05409: how the two solutions carry key and anchors to the answer.

    python research/figures/c3_information_flow.py [--seed 0 1] [--suffix .png]

Claim: the symmetric solution brings the anchors together at the last position in the first layer and adds the
key in the second; the inferential one first takes the key to the anchors, and then the result to the last
position. So vectors of the last position after the first layer gather by unordered anchor pair in the
symmetric solution, and do not in the inferential one.

The papers mark the edges that matter by hand; here every edge's direct effect is measured, and three routes,
each anchor asked by itself: inferential, symmetric, gathered at the second anchor (`information_flow`). The
cells are those of c2_gamma_depth.py at two layers; without them the default trains six of 13 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorlens.extras.sweep import Cell
from anchorlens.probes import first_layer_tsne, information_flow
from shared import common, solutions

SEQUENCE = (35, 63, 40, 4, 3, 38, 42, 36, 62)
"""The papers' picture sequence with the unseen pair: 40 - 10 = 30 is inferential, 40 - 6 = 34 symmetric."""
N_SEQUENCES = 1_000
"""Of the t-SNE; 10,000 in the paper, which takes a minute a model."""


def measure(
    cells: Sequence[Cell], n_sequences: int = N_SEQUENCES
) -> tuple[dict[str, Any], dict[str, solutions.Found]]:
    """Route scores, their stages and silhouettes by seed, and what the probes gave, by the picture's name."""
    flow = solutions.probed(cells, information_flow, tokens=SEQUENCE, effects="merged")
    vectors = solutions.probed(cells, first_layer_tsne, n_sequences=n_sequences)
    numbers = solutions.numbers(cells, flow, vectors)
    numbers["sequence"] = SEQUENCE
    for name, field in (("answers_to_it", "answer"), ("stages", "stages")):
        numbers[name] = {
            gamma: {seed: result.to_dict()[field] for seed, result in by_seed.items()}
            for gamma, by_seed in flow.items()
        }
    return numbers, {"c3_information_flow": flow, "c3_first_layer_tsne": vectors}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = common.options(__doc__)
    parser.add_argument("--n-sequences", type=int, default=N_SEQUENCES, help="of the t-SNE")
    given = parser.parse_args()
    cells = common.trained(given, solutions.solution_runs(given))
    numbers, found = measure(cells, given.n_sequences)
    common.write(given, "c3_information_flow", solutions.pictures(cells, found), numbers)


if __name__ == "__main__":
    main()
