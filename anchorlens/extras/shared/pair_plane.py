"""The picture of a task with two operands: a heat map over a (down) and b (right)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchorlens.tasks.shared.figure_specs import Grid

if TYPE_CHECKING:
    from jaxtyping import Float


def pair_plane(
    plane: Float[np.ndarray, "a b"],
    *,
    title: str,
    caption: str,
    frame: tuple[int, int, int, int] | None = None,
) -> Grid:
    """Every pair of operands as a point of a plane.

    Args:
        plane: 0..1 for each pair; NaN where nothing is drawn.
        title: heading above the picture.
        caption: how to read it.
        frame: a rectangle that is marked: first b, first a, last b, last a.
    """
    n = len(plane)
    values = [[None if np.isnan(share) else float(share) for share in row] for row in plane]
    return Grid(
        title=title,
        caption=caption,
        x_title="b",
        y_title="a",
        x=range(n),
        y=range(n),
        values=values,
        frame=frame,
    )
