"""The metrics of a model's samples: concepts by a linear classifier, and by a rule on masks for comparison.

Source: the classifier of the released code of arXiv 2501.08537, one linear layer for each concept on the
pixels, trained on images of all eight tuples. The rule is ours: it does not depend on the classifier, and a
blurred image does not mislead it in the same way.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.extras.concept_graphs import images
from anchorlens.extras.concept_graphs.images import COLOURS, CONCEPTS, RADII, TUPLES, draw, marked
from anchorlens.randomness import generator
from anchorlens.tasks import Accuracy, Grid, ImageGrid, Metric

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

MUST_KNOW = 0.99
"""The accuracy that the classifier must reach on held-out drawn images, for each concept."""
N_TRAINED, N_HELD_OUT = 4_500, 500
"""The numbers of images on which the classifier is trained and tested."""
FILL = 0.71
"""The fraction of its bounding box from which a shape is a circle. A circle fills pi / 4, and a triangle
fills one half. Pixels at the edges count by the covered fraction. In images of 24 pixels, drawn small
triangles fill 0.57 to 0.66, and circles fill at least 0.76."""
_GROUND = 0.3
"""The fraction of full ink below which a pixel belongs to the background."""
_LEAST_INK = 0.2
"""The full ink below which an image holds no shape."""
_FULL = 0.9
"""The ink of a fully covered pixel in the nominal colours."""
_DARKEST = 5
"""The number of darkest pixels over which the full ink of an image is the mean."""
_CIRCLE, _TRIANGLE = 0, 1
_PRESENT = 0.5
"""The fraction of a small shape's area from which a sample shows a shape; the smallest trained has 0.64."""
_SHOWN = 6
"""The number of samples of each tuple that a picture shows."""

_BY_CLASSIFIER = (
    Metric(
        "train",
        "trained",
        "Trained tuples drawn right",
        "samples of trained tuples that are there, with the right shape, size and colour",
        logged_as="train_accuracy",
    ),
    Metric(
        "unseen",
        "unseen",
        "Unseen tuples drawn right",
        "samples of tuples that were never trained, that are there, with all three concepts right",
        logged_as="unseen_accuracy",
    ),
    Metric(
        "failure",
        "failure",
        "Small circles drawn as triangles",
        "samples of small circles, which are never trained, that are triangles",
        logged_as="failure_rate",
        higher_is_better=False,
    ),
)
METRICS = (
    *_BY_CLASSIFIER,
    Metric(
        "circles",
        "circles",
        "Small circles drawn as circles",
        "samples of small circles that both rules take for circles, and that are there at all",
        logged_as="circles",
    ),
    Metric(
        "present",
        "present",
        "Small circles that are there at all",
        "samples of small circles that cover at least half of a small shape's area; of the others neither "
        "rule can say what they are",
        logged_as="present",
    ),
    *(
        Metric(
            f"{one.name}_by_mask",
            f"{one.name}, mask",
            f"{one.heading}, by the rule on masks",
            "the same by the filled share of the bounding box, area and mean colour",
            in_tables=False,
            higher_is_better=one.higher_is_better,
        )
        for one in _BY_CLASSIFIER
    ),
)


@functools.lru_cache(maxsize=8)
def classifier(side: int, shift: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """Return the classifier of images. The classifier has a linear map of the pixels for each concept.

    The function fits the classifier once for each size of images and each shift.

    Args:
        side: the number of pixels of an image's side.
        shift: the largest shift of a shape's centre, as for `draw`.

    Returns:
        A function from images [image, 3, y, x] to the shape, size and colour of each image, 0 or 1.

    Raises:
        ValueError: If the classifier's accuracy on held-out images is below 0.99 for some concept (chance
            0.5).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    rng = generator(0, "evaluation", 7)
    drawn = draw(rng.choice(TUPLES, N_TRAINED + N_HELD_OUT).tolist(), side, rng, shift)
    pixels, truth = drawn.pixels.numpy().reshape(len(drawn), -1), drawn.tuples
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its accuracy is checked below
        model = MultiOutputClassifier(LogisticRegression(C=10.0, max_iter=1000))
        model.fit(pixels[:N_TRAINED], truth[:N_TRAINED])

    def concepts_of(pixels: np.ndarray) -> np.ndarray:
        return model.predict(pixels.reshape(len(pixels), -1))

    shares = (concepts_of(pixels[N_TRAINED:]) == truth[N_TRAINED:]).mean(axis=0)
    for concept, share in zip(CONCEPTS, shares.tolist(), strict=True):
        if share < MUST_KNOW:
            raise ValueError(
                f"the classifier must be correct on {concept} for at least {MUST_KNOW:.0%} of the drawn "
                f"images with {side} pixels per side, got {share:.1%}. Use larger images (image_side), or a "
                "smaller shift"
            )
    return concepts_of


def by_mask(pixels: Float[np.ndarray, "image 3 y x"]) -> Int[np.ndarray, "image 3"]:
    """Classify the shape, size and colour of each image as 0 or 1, or -1 for an image without a shape.

    The rule uses the pixels that differ from the border.

    A shape counts as a circle if it fills more than 0.71 of its bounding box. The rule chooses the size whose
    nominal radius is nearest to the radius of a circle that has the covered area. The rule chooses the colour
    whose nominal value is nearest to the mean colour of the shape.
    """
    concepts = np.full((len(pixels), 3), -1)
    for row, image in enumerate(pixels):
        ink = _ink(image)
        full = np.sort(ink, axis=None)[-_DARKEST:].mean()
        if full < _LEAST_INK:
            continue
        covered = np.clip(ink / full, 0, 1)
        covered[covered < _GROUND] = 0
        n_pixels, box = covered.sum(), covered.max(axis=0).sum() * covered.max(axis=1).sum()
        radius = math.sqrt(n_pixels / math.pi) * 2 / pixels.shape[-1]
        colour = image[:, covered > 0.5].mean(axis=1)
        concepts[row] = (
            n_pixels / box <= FILL,
            np.argmin(np.abs(radius - np.array(RADII))),
            np.argmin(((colour - np.array(COLOURS)) ** 2).sum(axis=1)),
        )
    return concepts


def area(pixels: Float[np.ndarray, "image 3 y x"]) -> Float[np.ndarray, " image"]:
    """Compute the covered area of each image, relative to the area of a small shape.

    The area is about 1 for a small shape and about 4 for a large shape.

    Each pixel is weighted by its darkness relative to full colour, and pixels close to the background do not
    count. A faint shape therefore has a small area. A linear classifier assigns a class to any image. An area
    far from 1 and 4 shows that the image does not contain a small or large shape.

    >>> from anchorlens.randomness import generator
    >>> drawn = [draw([name] * 200, 24, generator(0, "data")) for name in ("010", "000")]
    >>> [round(float(area(images.pixels.numpy()).mean())) for images in drawn]
    [1, 4]
    """
    covered = np.stack([np.clip(_ink(image) / _FULL, 0, 1) for image in pixels])
    covered[covered < _GROUND] = 0
    return covered.sum(axis=(1, 2)) / (math.pi * (RADII[1] * pixels.shape[-1] / 2) ** 2)


def _ink(image: Float[np.ndarray, "3 y x"]) -> Float[np.ndarray, "y x"]:
    """Compute how much darker than the border each pixel is, in the colour that it lacks most."""
    ink = (1 - image).max(axis=0)
    return ink - np.median(np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]]))


def scored(
    drawn: Mapping[str, Float[np.ndarray, "sample 3 y x"]], classifier: Callable[[np.ndarray], np.ndarray]
) -> tuple[dict[str, Accuracy | None], tuple[Grid, ImageGrid]]:
    """Compute all metrics of samples by a classifier and by the rule on masks, and draw pictures of samples.

    A sample without a shape counts as wrong, even if a rule assigns the right class. Only the metric
    `failure` also uses the class of samples without a shape, as in the paper.

    Args:
        drawn: a map from every tuple to its samples, with equally many samples of each tuple.
        classifier: the function that classifies the shape, size and colour of each image.
    """
    there = np.stack([area(drawn[name]) >= _PRESENT for name in TUPLES])  # [tuple, sample]
    truth = np.array([[int(digit) for digit in name] for name in TUPLES])[:, None]
    trained, small_circle = np.isin(TUPLES, images.TRAINED), np.isin(TUPLES, images.SMALL_CIRCLES)
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


def _mosaic(drawn: Mapping[str, Float[np.ndarray, "sample 3 y x"]]) -> ImageGrid:
    """Arrange some samples of each tuple."""
    return ImageGrid.of(
        "Samples",
        "The model's samples, a row for each tuple; * marks tuples that were never trained. All rows use the "
        "same noise.",
        {marked(name): drawn[name][:_SHOWN] for name in TUPLES},
    )


def _by_tuple(right: Bool[np.ndarray, "tuple sample 3"]) -> Grid:
    """Compute the fraction of samples with correct shape, size and colour, and all three, of each tuple."""
    rows = np.column_stack([right.mean(axis=1), right.all(axis=-1).mean(axis=1)])
    return Grid(
        title="Concepts drawn correctly",
        caption="The cells show the fraction of samples with the correct shape, size, colour, or all three, "
        "by the classifier. A sample must show a shape. A star (*) marks tuples that were never trained.",
        x_title="concept",
        y_title="tuple",
        x=[*CONCEPTS, "all"],
        y=[marked(name) for name in reversed(TUPLES)],
        values=rows[::-1].tolist(),
    )
