"""What is measured of a model's samples: right concepts, and what becomes of small circles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.tasks.concept_graphs.images import CONCEPTS, SMALL_CIRCLES, TRAINED, TUPLES, marked
from anchorlens.tasks.concept_graphs.scoring import area, by_mask
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.shared.sketch import Grid, Mosaic

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Drawn = Mapping[str, Float[np.ndarray, "sample 3 y x"]]

_CIRCLE, _TRIANGLE = 0, 1
_PRESENT = 0.5
"""Share of a small shape's area from which a sample shows one: the smallest that is trained has .64."""
_SHOWN = 6
"""Samples of each tuple that a picture shows."""

_TRAINED, _UNSEEN, _FAILURE = (
    "Trained tuples drawn right",
    "Unseen tuples drawn right",
    "Small circles drawn as triangles",
)
METRICS = (
    Metric(
        "train",
        "trained",
        _TRAINED,
        "samples of trained tuples that are there, with the right shape, size and colour",
        logged_as="train_accuracy",
        map_caption="Samples of trained tuples whose shape, size and colour are all right.",
    ),
    Metric(
        "unseen",
        "unseen",
        _UNSEEN,
        "samples of tuples that were never trained, that are there, with all three concepts right",
        logged_as="unseen_accuracy",
        map_caption="Samples of tuples that were never trained whose shape, size and colour are all right.",
    ),
    Metric(
        "failure",
        "failure",
        _FAILURE,
        "samples of small circles, which are never trained, that are triangles",
        logged_as="failure_rate",
        map_caption="Samples of small circles that are triangles. In training every small shape was one.",
        higher_is_better=False,
    ),
    Metric(
        "circles",
        "circles",
        "Small circles drawn as circles",
        "samples of small circles that both rules take for circles, and that are there at all",
        logged_as="circles",
        map_caption="Samples of small circles that both rules take for circles, and that are there at all.",
    ),
    Metric(
        "present",
        "present",
        "Small circles that are there at all",
        "samples of small circles that cover at least half of a small shape's area; of the others neither "
        "rule can say what they are",
        logged_as="present",
        map_caption="Samples of small circles that cover at least half of a small shape's area.",
    ),
    *(
        Metric(
            f"{name}_by_mask",
            f"{name}, mask",
            f"{heading}, by the rule on masks",
            "the same by the filled share of the bounding box, area and mean colour",
            in_tables=False,
            higher_is_better=name != "failure",
        )
        for name, heading in (("train", _TRAINED), ("unseen", _UNSEEN), ("failure", _FAILURE))
    ),
)


def scored(
    drawn: Drawn, classifier: Callable[[np.ndarray], np.ndarray]
) -> tuple[dict[str, Accuracy | None], tuple[Grid, Mosaic]]:
    """Every metric of some samples, by a classifier and by the rule on masks, and pictures of them.

    What is not there at all is not drawn right, whatever the rules say of it; `failure` is the classifier's
    own word, as published.

    Args:
        drawn: every tuple -> its samples, as many of each.
        classifier: gives shape, size and colour of each image.
    """
    there = np.stack([area(drawn[name]) >= _PRESENT for name in TUPLES])  # [tuple, sample]
    truth = np.array([[int(digit) for digit in name] for name in TUPLES])[:, None]
    trained, small_circle = np.isin(TUPLES, TRAINED), np.isin(TUPLES, SMALL_CIRCLES)
    measures: dict[str, Accuracy | None] = {"present": Accuracy.of_some(there[small_circle].ravel())}
    right, circles = {}, there[small_circle]
    for suffix, rule in (("", classifier), ("_by_mask", by_mask)):
        says = np.stack([rule(drawn[name]) for name in TUPLES])  # [tuple, sample, concept]
        right[suffix] = (says == truth) & there[..., None]
        joint, shapes = right[suffix].all(axis=-1), says[small_circle, :, 0]
        circles = circles & (shapes == _CIRCLE)
        shares = {"train": joint[trained], "unseen": joint[~trained], "failure": shapes == _TRIANGLE}
        measures |= {f"{name}{suffix}": Accuracy.of_some(share.ravel()) for name, share in shares.items()}
    measures["circles"] = Accuracy.of_some(circles.ravel())
    return measures, (_by_tuple(right[""]), _mosaic(drawn))


def _mosaic(drawn: Drawn) -> Mosaic:
    """Some samples of each tuple."""
    return Mosaic.of(
        "Samples",
        "What the model draws, a row for each tuple; * marks those that were never trained. The same noise "
        "in every row.",
        {marked(name): drawn[name][:_SHOWN] for name in TUPLES},
    )


def _by_tuple(right: Bool[np.ndarray, "tuple sample 3"]) -> Grid:
    """The share of samples with the right shape, size and colour, and all of them, of each tuple."""
    rows = np.column_stack([right.mean(axis=1), right.all(axis=-1).mean(axis=1)])
    return Grid(
        title="Concepts drawn right",
        caption="Share of samples that are there and have the right shape, size and colour, and all three, "
        "by the classifier; * marks tuples that were never trained.",
        x_title="concept",
        y_title="tuple",
        x=[*CONCEPTS, "all"],
        y=[marked(name) for name in reversed(TUPLES)],
        values=rows[::-1].tolist(),
    )
