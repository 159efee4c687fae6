"""The images of Concept Graphs: a circle or a triangle, large or small, red or blue, on a white ground.

The papers' images are renderings of one object; we draw images with the same concepts. The circle and the
triangle of one size have the same area, so the area does not show the shape.

Source: arXiv 2501.08537, figure 6, after arXiv 2406.19370.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

CONCEPTS = ("shape", "size", "colour")
"""The concepts of a tuple's digits, in the paper's order."""
WORDS = {"shape": ("circle", "triangle"), "size": ("large", "small"), "colour": ("red", "blue")}
"""A map from each concept to the words for 0 and 1."""
TRAINED = ("000", "100", "001", "111")
"""The tuples with images in the training set. "Small" occurs only with a triangle, and only with blue."""
TUPLES = tuple("".join(digits) for digits in itertools.product("01", repeat=3))
UNSEEN = tuple(name for name in TUPLES if name not in TRAINED)
"""The tuples that are never trained: 010, 011, 101, 110."""
SMALL_CIRCLES = ("010", "011")
"""The small circles, which figure 6B shows."""

COLOURS = ((0.9, 0.1, 0.1), (0.1, 0.1, 0.9))
RADII = (0.6, 0.3)
"""The radii of a large and a small circle, in half sides of the image."""
N_CHANNELS = 3
"""The channels of an image: red, green and blue."""
N_CONDITIONS = 6
"""The numbers of a condition: two for the shape, one for the size, three for the colour."""
_COLOUR_JITTER = 0.1
_RADIUS_JITTER = 0.06
_NOISE = 1e-3
_SIZE_UNIT = 4.4
"""The factor from the radius to the condition for size: 2.6 for a large shape, as in the released code, and
1.3 for a small shape (1.6 in the released code)."""
_SIDE = math.sqrt(4 * math.pi / math.sqrt(3))
"""The side of an equilateral triangle with the area of a circle of radius 1."""
_HEIGHT = _SIDE * math.sqrt(3) / 2


@frozen_dataclass(eq=False)
class Images:
    """A set of images, with their conditions and concepts."""

    pixels: Float[Tensor, "image 3 y x"]
    """The red, green and blue values, 0..1."""
    conditions: Float[Tensor, "image 6"]
    """The conditions that a model reads, which are two numbers for shape, one for size and three for
    colour."""
    tuples: Int[np.ndarray, "image 3"]
    """The shape, size and colour, each 0 or 1."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def example_bytes(self) -> int:
        """The memory of one image, in bytes."""
        return 4 * (self.pixels[0].numel() + N_CONDITIONS)

    def take(self, rows: Int[np.ndarray, " row"]) -> Images:
        """Return the images at the indices `rows`, in the order of `rows`."""
        return Images(self.pixels[rows], self.conditions[rows], self.tuples[rows])


def in_words(name: str) -> str:
    """Describe a tuple of concepts in words.

    Raises:
        ValueError: If the tuple is unknown.

    >>> in_words("010")
    'small red circle'
    """
    digits = zip(CONCEPTS, checked(name), strict=True)
    shape, size, colour = (WORDS[concept][int(digit)] for concept, digit in digits)
    return f"{size} {colour} {shape}"


def marked(name: str) -> str:
    """Describe a tuple of concepts in words, with a star if the tuple is never trained.

    >>> marked("010"), marked("000")
    ('small red circle *', 'large red circle')
    """
    return f"{in_words(name)}{' *' if name in UNSEEN else ''}"


def released_order(name: str) -> str:
    """Convert a tuple between the paper's order and the order of the released code (shape, colour, size).

    The paper's training set 000 100 001 111 is 000 100 010 111 in the released code.

    >>> [released_order(name) for name in TRAINED]
    ['000', '100', '010', '111']
    """
    shape, second, third = checked(name)
    return shape + third + second


def checked(name: str) -> str:
    """Check that a tuple of concepts is valid, and return the tuple.

    Raises:
        ValueError: If the tuple is unknown.
    """
    if name not in TUPLES:
        raise ValueError(
            f"a tuple must be three digits for shape, size and colour, each 0 or 1 ({', '.join(TUPLES)}), "
            f"got {safe_repr(name)}. Correct the tuple"
        )
    return name


def nominal(name: str) -> Float[np.ndarray, " 6"]:
    """Return the conditions of a tuple of concepts, without jitter.

    Raises:
        ValueError: If the tuple is unknown.
    """
    shape, size, colour = (int(digit) for digit in checked(name))
    return _told(shape, RADII[size], np.array(COLOURS[colour]))


def draw(tuples: Sequence[str], side: int, rng: np.random.Generator, shift: float = 0.0) -> Images:
    """Draw an image of each tuple, with random jitter of the colour, size and position.

    Args:
        tuples: the tuples to draw, in the paper's order of concepts.
        side: the number of pixels of an image's side.
        rng: the generator of the jitter. The jitter is U(-0.1, 0.1) for each colour channel and U(-0.06,
            0.06) for the radius. Each pixel also gets noise of standard deviation 0.001.
        shift: the largest shift of a shape's centre, in half sides of the image. Each coordinate of the
            centre is drawn from U(-shift, shift).

    Raises:
        ValueError: If a tuple is unknown, or `tuples` is empty.
    """
    import torch

    if not len(tuples):
        raise ValueError("tuples must contain at least one tuple, such as 010, got none. Give a tuple")
    digits = np.array([[int(digit) for digit in checked(name)] for name in tuples])
    n = len(digits)
    colours = np.array(COLOURS)[digits[:, 2]] + rng.uniform(-_COLOUR_JITTER, _COLOUR_JITTER, (n, 3))
    radii = np.array(RADII)[digits[:, 1]] + rng.uniform(-_RADIUS_JITTER, _RADIUS_JITTER, n)
    centres = rng.uniform(-1, 1, (n, 2)) * shift
    covered = np.stack(list(map(coverage, digits[:, 0], radii, [side] * n, centres)))[:, None]
    pixels = 1 - covered * (1 - colours[:, :, None, None])
    pixels = np.clip(pixels + rng.normal(0, _NOISE, pixels.shape), 0, 1)
    conditions = np.array(list(map(_told, digits[:, 0], radii, colours)))
    return Images(
        torch.tensor(pixels, dtype=torch.float32, device="cpu"),
        torch.tensor(conditions, dtype=torch.float32, device="cpu"),
        digits,
    )


def coverage(
    shape: int, radius: float, side: int, centre: Sequence[float] = (0.0, 0.0)
) -> Float[np.ndarray, "y x"]:
    """Compute the fraction of each pixel that a shape covers. The edge of the shape is one pixel wide.

    Args:
        shape: 0 for a circle, or 1 for an equilateral triangle with a horizontal base and the circle's area.
        radius: the radius of the circle, in half sides of the image.
        side: the number of pixels of the image's side.
        centre: the centre of the circle, or of the triangle's bounding box.
    """
    at = (np.arange(side) + 0.5) * 2 / side - 1
    x, y = np.meshgrid(at - centre[0], centre[1] - at)  # y points up
    if shape == 0:
        beyond = np.hypot(x, y) - radius
    else:
        half = _HEIGHT * radius / 2
        slope = math.sqrt(3) / 2 * np.abs(x) + (y - half) / 2  # distance to the slanted sides
        beyond = np.maximum(-half - y, slope)
    return np.clip(0.5 - beyond * side / 2, 0, 1)


def _told(shape: int, radius: float, colour: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " 6"]:
    return np.array([1 - shape, shape, _SIZE_UNIT * radius, *colour])
