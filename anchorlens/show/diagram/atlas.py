"""All maps of one slice in the order of the page, with the words beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from anchorlens.figures.picture import Picture
from anchorlens.show.diagram.maps import agreement_map, number_map, phase_map
from anchorlens.show.diagram.rank_map import rank_map
from anchorlens.show.words import Caption
from anchorlens.sweep.cells import Cell


class Map(NamedTuple):
    """One kind of map."""

    name: str
    """For programs."""
    caption: Caption
    """Heading and how to read it."""
    draw: Callable[[Sequence[Cell], str, str | None], Picture]
    """Cells of one slice, x and y -> the figure; a ValueError says why there is none."""


def _number(name: str) -> Callable[[Sequence[Cell], str, str | None], Picture]:
    return partial(_number_map, name)


def _number_map(name: str, cells: Sequence[Cell], x: str, y: str | None) -> Picture:
    return number_map(cells, name, x, y)


MAPS = (
    Map(
        "phase",
        Caption(
            "Phase by behaviour",
            "Each place holds one stripe for each seed, the lowest at its left, in the colour of its phase. "
            "Written are the phase and how many seeds come to it, or each seed's own sign where they differ.",
        ),
        phase_map,
    ),
    Map(
        "id",
        Caption(
            "ID accuracy",
            "Seen pairs at held-out (key, position): below .90 it is Phase 1. Written is the mean over the "
            "seeds.",
        ),
        _number("id"),
    ),
    Map(
        "ood",
        Caption(
            "OOD accuracy",
            "Unseen pairs against the composition of the rules: above .50 it is Phase 3. Written is the mean "
            "over the seeds.",
        ),
        _number("ood"),
    ),
    Map(
        "symmetric",
        Caption(
            "Symmetric accuracy",
            "Unseen pairs answered as their mirrored pair was trained, not as the rules say. Written is the "
            "mean over the seeds.",
        ),
        _number("symmetric"),
    ),
    Map(
        "commutativity",
        Caption(
            "Commutativity",
            "Share of sequences that get the same answer with the two anchors in either order: from .70 on "
            "Phase 2 is called with commutativity. Written is the mean over the seeds.",
        ),
        _number("commutativity"),
    ),
    Map(
        "stable_rank",
        Caption(
            "Stable rank and phase",
            "A bubble is a seed: the larger, the later its phase; its colour is the stable rank of the first "
            "layer's W_Q, that is how many directions its neurons use. Written is the mean rank.",
        ),
        rank_map,
    ),
    Map(
        "agreement",
        Caption(
            "Behaviour against mechanism",
            "Whether the mechanism verdict, which never sees an answer to an unseen pair, names the phase "
            "that the behaviour verdict names; with or without commutativity is not compared.",
        ),
        agreement_map,
    ),
)
"""Every map of the page, in order."""
