"""What the cells of a slice come to, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorlens.configuration import documented
from anchorlens.show.diagram.looks import AGREE, DISAGREE, FAILED, MISSING, OUTCOMES, Look, agreement, outcome
from anchorlens.show.diagram.places import arranged
from anchorlens.sweep.cells import Cell


@documented
@dataclass(frozen=True, eq=False)
class Summary:
    """Counts over cells and places."""

    outcomes: Mapping[Look, int]
    """What cells came to -> number of cells, in the order of `looks.OUTCOMES`; only what occurs."""
    n_voting: int
    """Places with two or more trained seeds."""
    n_unanimous: int
    """Those of them whose trained seeds all came to the same."""
    n_compared: int
    """Cells where behaviour and mechanism both name a phase."""
    n_agreeing: int
    """Those of them where it is the same phase."""

    @property
    def words(self) -> str:
        """The counts in a sentence."""
        counts = ", ".join(f"{n} {look.name}" for look, n in self.outcomes.items())
        seeds = f"seeds agree in {self.n_unanimous} of {self.n_voting} places"
        return f"{counts}; {seeds}; verdicts agree in {self.n_agreeing} of {self.n_compared} cells"


def summary(cells: Sequence[Cell], x: str, y: str | None) -> Summary:
    """Count what the cells of one slice came to.

    Args:
        cells: at least one; they differ in x, y, the seed and what goes with x or y.
        x: field of the configurations, across.
        y: another, up; None for one row.

    Raises:
        ValueError: no cell, or cells that differ in something else.
    """
    trained = [
        [found for found in map(outcome, place.cells) if found not in (FAILED, MISSING)]
        for place in arranged(cells, x, y).places
    ]
    voting = [votes for votes in trained if len(votes) > 1]
    came_to = Counter(map(outcome, cells))
    compared = Counter(map(agreement, cells))
    return Summary(
        outcomes={look: came_to[look] for look in OUTCOMES if came_to[look]},
        n_voting=len(voting),
        n_unanimous=sum(len(set(votes)) == 1 for votes in voting),
        n_compared=compared[AGREE] + compared[DISAGREE],
        n_agreeing=compared[AGREE],
    )
