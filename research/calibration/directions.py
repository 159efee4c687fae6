"""The direction in which each reading is evidence for the questions of the calibration.

The papers or the definition of the phases determine the direction. The fit determines the strength of the
evidence, and never reverses its sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anchorlens.verdict.calibration import Question
from anchorlens.verdict.readings import READINGS, Reading

Directions = Mapping[Question, Literal[1, -1]]

DIRECTIONS: Mapping[str, Directions] = {
    "mask_key_token.mirror_merge": {"commutative": -1},
    "mask_key_token.silhouette_ordered": {"generalises": 1, "commutative": -1},
    "mask_key_token.silhouette_unordered": {"generalises": 1, "commutative": 1},
    "mask_second_anchor.centred_gap": {"generalises": 1, "composes": 1},
    "information_flow.inferential_route": {"composes": 1},
    "information_flow.symmetric_route": {"composes": -1, "commutative": 1},
    "information_flow.gathered_route": {"composes": 1, "commutative": -1},
    "information_flow.margin": {"inferential": 1},
    "information_flow.relative_margin": {"generalises": 1},
    "activation_patching.carried_by_second_anchor": {"composes": 1, "commutative": -1},
    "interchange.accuracy": {"generalises": 1, "composes": 1},
    "interchange.equal_accuracy": {"composes": 1},
    "v_similarity.centred_gap": {"generalises": 1, "composes": 1},
    "fusion_similarity.centred_gap": {"generalises": 1, "composes": 1},
    "fusion_similarity.centred_gap of mirrored pairs": {"commutative": 1},
    "nearest_neighbours.g1_at_first_anchor": {"generalises": 1, "commutative": 1},
    "nearest_neighbours.g2_at_second_anchor": {"commutative": 1},
    "nearest_neighbours.target_at_second_anchor": {"composes": 1},
    "nearest_neighbours.target_at_last": {"generalises": 1, "composes": 1},
    "nearest_neighbours.pair_share": {"composes": -1, "commutative": 1},
    "nearest_neighbours.unseen_target_at_last": {"generalises": 1, "composes": 1},
    "nearest_neighbours.unseen_margin": {"composes": 1},
    "nearest_neighbours.unseen_g1_at_last": {"composes": 1, "commutative": -1},
    "gradient_sharing.sharing": {"inferential": 1},
    "gradient_sharing.mlp_sharing": {"inferential": 1},
    "gradient_sharing.attention_sharing": {"inferential": 1},
    "gradient_sharing.order_blindness": {"inferential": -1, "commutative": 1},
    "q_condensation.mean_abs_cosine": {"generalises": 1, "composes": 1},
    "embedding_pca.lag_order": {"generalises": 1, "composes": 1},
    "stable_rank.w_q_normalized": {"generalises": -1, "composes": -1},
    "holdout.holdout_ratio": {"generalises": 1},
    "survival.survival": {"composes": 1},
}
"""Reading -> its direction for each question: 1 if a larger value is evidence for yes, -1 if it is evidence
for no."""
SAME_AS: Mapping[Question, tuple[Question, ...]] = {
    "inferential": ("composes", "generalises"),
    "symmetric": ("commutative",),
}
"""The questions of `reasoning` for each question of `conflict`. A reading uses the first question for which
the reading has a direction."""


@dataclass(frozen=True)
class DirectedReading(Reading):
    """A reading, and the questions for which it is evidence."""

    directions: Directions = field(default_factory=dict)
    """The direction for each question, as in `DIRECTIONS`."""

    def sign(self, which: Question) -> Literal[1, -1, 0]:
        """Return the sign of the reading's evidence for a question, or 0 if the reading is not evidence.

        A question of the regime `conflict` has the sign of the corresponding question of `reasoning`
        (`SAME_AS`).
        """
        for same in (which, *SAME_AS.get(which, ())):
            if same in self.directions:
                return self.directions[same]
        return 0


DIRECTED = tuple(DirectedReading(**vars(one), directions=DIRECTIONS[one.name]) for one in READINGS)
"""All readings, in the order of the probes."""
