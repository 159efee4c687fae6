"""What the report says about phases and pictures, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Agreement(NamedTuple):
    """Whether behaviour and mechanism name one phase, as it is shown."""

    sign: str
    """Between both."""
    sentence: str
    """Without its full stop."""
    word: str
    """In a table."""


AGREEMENT: Mapping[bool | None, Agreement] = {
    True: Agreement("=", "Both verdicts agree", "yes"),
    False: Agreement("≠", "The verdicts disagree", "NO"),
    None: Agreement("?", "No comparison", "-"),
}
"""What `Verdict.agreement` holds -> how it is shown."""


class Caption(NamedTuple):
    """What stands beside a picture."""

    title: str
    """Heading above the picture of the probe."""
    how_to_read: str
    """One sentence."""


NO_DOCSTRING = "Its docstring, whose first sentence would stand here, says nothing about it."
"""How to read the picture of a probe of one's own that has none."""

CAPTIONS: Mapping[str, Caption] = {
    "mask_key_token": Caption(
        "Answers without the key token",
        "Each point is an answer given without the key, a pair of anchors and its mirror in one colour: no "
        "clusters speak for Phase 1, one for every ordered pair for Phase 2 without commutativity, mirrored "
        "pairs in one cluster for Phase 2 with commutativity or Phase 3.",
    ),
    "mask_second_anchor": Caption(
        "Answers without the second anchor",
        "Rows and columns are values of g(x; a), the first step's result, each cell the mean over their "
        "inputs: a red diagonal means that what is left without the second anchor is g, whatever key and "
        "anchor made it.",
    ),
    "information_flow": Caption(
        "Information flow",
        "Each row of circles is the sequence after one more layer, a line's width is attention, its colour "
        "the share of the answer's margin that is lost when this edge alone is cut: key to anchors and then "
        "each anchor to last is the inferential route, anchors first and the key last the symmetric one, "
        "everything to the last anchor first the gathered one.",
    ),
    "attention_patterns": Caption(
        "Attention patterns",
        "A row is the token that looks, a column the token it looks at, and darker is more; in the last "
        "layer the bottom row shows what the answer is read from.",
    ),
    "activation_patching": Caption(
        "Activation patching",
        "Each cell is one layer and position whose activation is put from a clean run into a run with "
        "another key or anchor: 1 (red) brings back the whole clean answer, so the change is carried there.",
    ),
    "interchange": Caption(
        "Interchange interventions",
        "Each cell is one layer and position whose activation is put from one input into another: dark where "
        "the answer becomes that of the other's g(x; a), so that g(x; a) is held there and can be swapped.",
    ),
    "v_similarity": Caption(
        "Values at the first anchor",
        "Keys with one anchor against keys with another; where the boxed cells, of equal g(x; a), are "
        "redder than the rest, the values say g rather than the key, as in Phase 3.",
    ),
    "fusion_similarity": Caption(
        "Fusion at the last position",
        "Inputs of two anchor pairs against each other before the last MLP; where the boxed cells, of equal "
        "target, are redder than the rest, inputs of equal answers already look alike, as in Phase 3.",
    ),
    "first_layer_tsne": Caption(
        "The last position after the first layer",
        "Each point is one sequence, coloured by its anchor pair: points of one colour that lie together "
        "mean that the first layer has already brought the anchors to the last position.",
    ),
    "q_condensation": Caption(
        "Condensation of W_Q",
        "Cosines between the neurons of the first layer's W_Q, gathered into groups: large blocks of red "
        "mean that neurons share few directions, which small initialisation leads to, and an even white "
        "that none do.",
    ),
    "embedding_pca": Caption(
        "Embedding of the numbers",
        "Above, the number tokens in the first two principal components, arrows joining x to x + 3 and x + 4 "
        "(or the task's two smallest differences of shifts); below, how alike numbers are that "
        "differ by k: raised orange bars, at the differences of the shifts, mean that the embedding carries "
        "the order of the rules.",
    ),
    "stable_rank": Caption(
        "Stable rank",
        "A bar is how many directions a matrix uses, the mark beside it how many a random matrix of its "
        "shape would: bars far short of their marks are condensed.",
    ),
    "training_regime": Caption(
        "Movement since the start of training",
        "Bars are how far each matrix has moved in units of its initial size, and below is the tangent "
        "kernel at the start and now: far and another kernel mean that features were learned.",
    ),
    "training_curve": Caption(
        "Training curve",
        "Accuracies above and the loss below, on a logarithmic scale, against optimizer steps: an OOD "
        "accuracy that rises with the others is composition, one that stays down is not.",
    ),
    "trajectory": Caption(
        "Trajectory and forecast",
        "Above, the accuracies of each checkpoint of the run; below, the probability of each final phase "
        "that is read from that checkpoint's inside alone.",
    ),
}
"""Picture (every probe by its name, and the report's own) -> its heading and how it is read."""
