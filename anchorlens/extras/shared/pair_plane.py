"""Pictures of a task with two operands: a heat map over a (down) and b (right), and accuracy by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchorlens.tasks import Accuracy, Curve, Grid

if TYPE_CHECKING:
    from jaxtyping import Float


def pair_plane(
    plane: Float[np.ndarray, "a b"], title: str, caption: str, frame: tuple[int, int, int, int] | None = None
) -> Grid:
    """Draw the values of all pairs of operands as a heat map.

    Args:
        plane: the value of each pair, 0..1, or NaN for a pair that is not drawn.
        title: the heading of the picture.
        caption: the explanation of the picture.
        frame: the rectangle to mark, as first b, first a, last b and last a.
    """
    n = len(plane)
    values = [[None if np.isnan(share) else float(share) for share in row] for row in plane]
    return Grid(title, caption, x_title="b", y_title="a", x=range(n), y=range(n), values=values, frame=frame)


def by_distance(plane: Float[np.ndarray, "a b"], low: int, high: int) -> Curve:
    """Draw accuracy against the distance to a square's border, where distance 1 is just inside the border.

    Args:
        plane: the correctness of each pair, 1 for a correct answer and 0 for a wrong answer.
        low: the smallest operand in the square.
        high: the largest operand in the square.
    """
    operands = np.arange(len(plane))
    inside = np.minimum(operands - low, high - operands) + 1  # <= 0 outside
    distance = np.minimum.outer(inside, inside)
    x = np.unique(distance).tolist()
    shares = [Accuracy.of_some(plane[distance == steps]) for steps in x]
    return Curve(
        title="Accuracy against the distance to the border",
        caption="The line shows accuracy by steps into the held-out square, where no sum is trained. Steps "
        "of 0 and below are outside the square. A model that relies on neighbouring sums gets worse inwards.",
        x_title="steps into the square",
        y_title="accuracy",
        x=x,
        y=[share.value for share in shares],
        errors=[share.standard_error for share in shares],
        mark=0.5,
    )
