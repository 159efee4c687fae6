"""Concepts of an image by a linear classifier for each concept, and by a rule on its mask for comparison.

Source: the classifier of the released code of arXiv 2501.08537, one linear layer for each concept on the
pixels, trained on images of all eight tuples. The rule is our own: it knows nothing of the classifier, and
cannot be taken in by a blurred image in the same way.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.randomness import generator
from anchorlens.tasks.concept_graphs.images import COLOURS, CONCEPTS, RADII, TUPLES, draw

if TYPE_CHECKING:
    from jaxtyping import Float, Int

MUST_KNOW = 0.99
"""Share of held-out drawn images that the classifier must name right, for each concept."""
N_TRAINED, N_HELD_OUT = 4_500, 500
"""Images that it is trained on, and tested with."""
FILL = 0.71
"""Share of its bounding box that a shape fills, above which it is a circle: pi / 4, and of a triangle half.
At the edges pixels count by the share that is covered; drawn small triangles of 24 pixels come to .57 to .66,
and circles to .76 and more."""
_GROUND = 0.3
"""Share of the darkest pixels, above the ground that the border shows, up to which a pixel belongs to it."""
_LEAST_INK = 0.2
"""Ink of the darkest pixels below which an image holds no shape."""
_FULL = 0.9
"""Ink of a pixel that is covered: of the nominal colours."""
_DARKEST = 5
"""Pixels whose mean is full cover."""


@functools.lru_cache(maxsize=8)
def classifier(side: int, shift: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """The classifier of images of a size, a linear map of the pixels for each concept, fit once.

    Args:
        side: pixels of an image's side.
        shift: how far from the middle images are drawn, as for `draw`.

    Returns:
        A function of images [image, 3, y, x] that gives shape, size and colour of each, 0 or 1.

    Raises:
        ValueError: it does not name .99 of held-out images right, for each concept.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    rng = generator(0, "evaluation", 7)
    images = draw(rng.choice(TUPLES, N_TRAINED + N_HELD_OUT).tolist(), side, rng, shift)
    pixels, truth = images.pixels.numpy().reshape(len(images), -1), images.tuples
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what it knows is asked below
        models = [
            LogisticRegression(C=10.0, max_iter=1000).fit(pixels[:N_TRAINED], concept)
            for concept in truth[:N_TRAINED].T
        ]

    def concepts_of(images: np.ndarray) -> np.ndarray:
        return np.stack([model.predict(images.reshape(len(images), -1)) for model in models], axis=1)

    shares = (concepts_of(pixels[N_TRAINED:]) == truth[N_TRAINED:]).mean(axis=0)
    for concept, share in zip(CONCEPTS, shares.tolist(), strict=True):
        if share < MUST_KNOW:
            raise ValueError(
                f"the classifier must tell {concept} in {MUST_KNOW:.0%} of drawn images of {side} "
                f"pixels, and does in {share:.1%}; take larger images (image_side), or a smaller shift"
            )
    return concepts_of


def by_mask(pixels: Float[np.ndarray, "image 3 y x"]) -> Int[np.ndarray, "image 3"]:
    """Shape, size and colour of each image, 0 or 1, from the pixels unlike the border; -1 without any.

    The shape is a circle where it fills more than .71 of its bounding box; the size goes by the covered area,
    the colour by the mean colour, each to the nearer of the two.
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
    """Area that each image covers, over that of a small shape: about 1 for one, 4 for a large one.

    A pixel counts by how dark it is beside full colour, and not where it is hardly darker than the ground; so
    a shape that is faint covers little. A linear classifier must answer something for any image: an area far
    from 1 and 4 says that it was asked about what is neither.

    >>> from anchorlens.randomness import generator
    >>> drawn = [draw([name] * 200, 24, generator(0, "data")) for name in ("010", "000")]
    >>> [round(float(area(images.pixels.numpy()).mean())) for images in drawn]
    [1, 4]
    """
    covered = np.stack([np.clip(_ink(image) / _FULL, 0, 1) for image in pixels])
    covered[covered < _GROUND] = 0
    return covered.sum(axis=(1, 2)) / (math.pi * (RADII[1] * pixels.shape[-1] / 2) ** 2)


def _ink(image: Float[np.ndarray, "3 y x"]) -> Float[np.ndarray, "y x"]:
    """How much darker than the border each pixel is, in the colour that it lacks most."""
    ink = (1 - image).max(axis=0)
    return ink - np.median(np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]]))
