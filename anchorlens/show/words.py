"""What the report says about phases and pictures, in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anchorlens.verdict.mechanism import Evidence, Mechanism


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


class Change(NamedTuple):
    """How the odds of a label change."""

    label: str
    """Of the phase."""
    factor: str
    """`×3.1` or `÷3.1`; empty where it is not known."""


def beside(mechanism: Mechanism) -> str:
    """What stands below the phase of the mechanism: the verdict by the probes, and what is unusual."""
    notes = []
    if mechanism.by_probes is not None and mechanism.by_probes.probabilities is not None:
        notes.append(f"By the probes alone: {mechanism.by_probes.in_words()}.")
    if mechanism.outside:
        notes.append(f"Less sure, for it lies outside the calibration: {'; '.join(mechanism.outside)}.")
    return " ".join(notes)


_LEAST, _MOST = 1.1, 1000.0
"""Factors below the first are left out; above the second it is said that they are."""


def raised(evidence: Evidence) -> list[Change]:
    """The labels whose odds a reading raises, most first."""
    if not evidence.odds:  # a verdict that was stored before odds were
        return [] if evidence.vote is None else [Change(evidence.vote, "")]
    ordered = sorted(evidence.odds.items(), key=lambda item: -item[1])
    return [Change(label, f"×{factor}") for label, nats in ordered if (factor := _factor(nats))]


def lowered(evidence: Evidence) -> list[Change]:
    """The labels whose odds it lowers, most first."""
    ordered = sorted(evidence.odds.items(), key=lambda item: item[1])
    return [Change(label, f"÷{factor}") for label, nats in ordered if (factor := _factor(-nats))]


def _factor(nats: float) -> str:
    """By how much odds change, in words; empty where that is next to nothing.

    >>> _factor(math.log(12.3)), _factor(math.log(1.55)), _factor(0.01), _factor(20.0)
    ('12', '1.6', '', '1,000 or more')
    """
    factor = math.exp(min(nats, 50.0))
    if factor < _LEAST:
        return ""
    if factor >= _MOST:
        return f"{_MOST:,.0f} or more"
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"


def odds(nats: float) -> str:
    """Log-odds of yes as odds.

    >>> odds(math.log(3.1)), odds(-math.log(12)), odds(0.01), odds(-9.0)
    ('yes, 3.1 to 1', 'no, 12 to 1', 'even', 'no, 1,000 or more to 1')
    """
    factor = _factor(abs(nats))
    return f"{'yes' if nats > 0 else 'no'}, {factor} to 1" if factor else "even"


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
    "nearest_neighbours": Caption(
        "Whose results are alike",
        "Each cell is one layer and position: dark where the input that looks most alike there has the same "
        "g(x; a), or the same target, though its anchors are others, so that the place says that result; the "
        "last panel asks it of unseen pairs.",
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
        "that is read from that checkpoint's inside and the phase it has then.",
    ),
}
"""Picture (every probe by its name, and the report's own) -> its heading and how it is read."""

TRAINING_WITHOUT_PHASES = Caption(
    "Training curve",
    "What the task measures above and the loss below, on a logarithmic scale, against optimizer steps.",
)
"""The training curve of tasks without train, ID and OOD accuracy."""
