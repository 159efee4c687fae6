"""What is measured of a model's samples: right concepts, and what becomes of small circles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.tasks.concept_graphs.images import CONCEPTS, SMALL_CIRCLES, TRAINED, TUPLES, UNSEEN, marked
from anchorlens.tasks.concept_graphs.scoring import area, by_mask
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.shared.sketch import Grid, Mosaic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Answers = Mapping[str, Int[np.ndarray, "sample 3"]]
    Areas = Mapping[str, Float[np.ndarray, " sample"]]
    Drawn = Mapping[str, Float[np.ndarray, "sample 3 y x"]]

_CIRCLE, _TRIANGLE = 0, 1
_PRESENT = 0.5
"""Share of a small shape's area from which a sample shows one: the smallest that is trained has .64."""
_SHOWN = 6
"""Samples of each tuple that a picture shows."""

METRICS = (
    Metric(
        "train",
        "trained",
        "Trained tuples drawn right",
        "samples of trained tuples that are there, with the right shape, size and colour",
        logged_as="train_accuracy",
        map_caption="Samples of trained tuples whose shape, size and colour are all right.",
    ),
    Metric(
        "unseen",
        "unseen",
        "Unseen tuples drawn right",
        "samples of tuples that were never trained, that are there, with all three concepts right",
        logged_as="unseen_accuracy",
        map_caption="Samples of tuples that were never trained whose shape, size and colour are all right.",
    ),
    Metric(
        "failure",
        "failure",
        "Small circles drawn as triangles",
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
        for name, heading in (
            ("train", "Trained tuples drawn right"),
            ("unseen", "Unseen tuples drawn right"),
            ("failure", "Small circles drawn as triangles"),
        )
    ),
)

_share = Accuracy.of_some
"""Of samples of very many that there could be."""


def scored(
    drawn: Drawn, classifier: Callable[[np.ndarray], np.ndarray]
) -> tuple[dict[str, Accuracy | None], tuple[Grid, Mosaic]]:
    """Every metric of some samples, by a classifier and by the rule on masks, and pictures of them."""
    found = {each: classifier(images) for each, images in drawn.items()}
    second = {each: by_mask(images) for each, images in drawn.items()}
    areas = {each: area(images) for each, images in drawn.items()}
    return measures(found, second, areas), (by_tuple(found, areas), mosaic(drawn))


def measures(found: Answers, second: Answers, areas: Areas) -> dict[str, Accuracy | None]:
    """Every metric.

    What is not there at all is not drawn right, whatever the rules say of it; `failure` is the classifier's
    own word, as published.

    Args:
        found: tuple -> shape, size and colour of each sample, by the classifier.
        second: the same by the rule on masks.
        areas: tuple -> area of each sample, a small shape's being 1.
    """
    by_mask = {f"{name}_by_mask": share for name, share in _measures(second, areas).items()}
    present = np.concatenate([areas[each] >= _PRESENT for each in SMALL_CIRCLES])
    both = [(found[each][:, 0] == _CIRCLE) & (second[each][:, 0] == _CIRCLE) for each in SMALL_CIRCLES]
    circles = present & np.concatenate(both)
    return {
        **_measures(found, areas),
        "circles": _share(circles),
        "present": _share(present),
        **by_mask,
    }


def mosaic(drawn: Drawn) -> Mosaic:
    """Some samples of each tuple."""
    return Mosaic.of(
        "Samples",
        "What the model draws, a row for each tuple; * marks those that were never trained. The same noise "
        "in every row.",
        {marked(each): drawn[each][:_SHOWN] for each in TUPLES},
    )


def _right(each: str, found: Answers, areas: Areas) -> np.ndarray:
    """[sample, concept] Whether each concept is as the tuple says, of a sample that is there."""
    right = found[each] == np.array([int(digit) for digit in each])
    return right & (areas[each] >= _PRESENT)[:, None]


def _measures(found: Answers, areas: Areas) -> dict[str, Accuracy | None]:
    """Joint shares of trained and unseen tuples, and small circles that are triangles."""
    joint = {each: _right(each, found, areas).all(axis=1) for each in found}
    return {
        "train": _share(np.concatenate([joint[each] for each in TRAINED])),
        "unseen": _share(np.concatenate([joint[each] for each in UNSEEN])),
        "failure": _share(np.concatenate([found[each][:, 0] == _TRIANGLE for each in SMALL_CIRCLES])),
    }


def by_tuple(found: Answers, areas: Areas) -> Grid:
    """The share of samples with the right shape, size and colour, and all of them, of each tuple."""
    right = {each: _right(each, found, areas) for each in found}
    rows = [[*right[each].mean(axis=0).tolist(), float(right[each].all(axis=1).mean())] for each in TUPLES]
    return Grid(
        title="Concepts drawn right",
        caption="Share of samples that are there and have the right shape, size and colour, and all three, "
        "by the classifier; * marks tuples that were never trained.",
        x_title="concept",
        y_title="tuple",
        x=[*CONCEPTS, "all"],
        y=[marked(each) for each in reversed(TUPLES)],
        values=rows[::-1],
    )
