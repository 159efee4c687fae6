"""Where a reading lies among the ranges of the phases, as numbers for a small drawing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from anchorlens.tasks.phases import COLOURS, LABELS, SHORT

if TYPE_CHECKING:
    from anchorlens.verdict.mechanism import Evidence

LEAST_WIDTH = 1.5
"""Of a band, in percent: a range of one value is still seen."""


class Band(NamedTuple):
    """The range of one phase on the scale of its bar, 0..100."""

    short: str
    """The phase's short label."""
    colour: str
    """Of the phase."""
    start: float | None
    """Left end; None where the phase has no range."""
    width: float


class RangeBar(NamedTuple):
    """One band per phase on a common scale, and the value."""

    bands: tuple[Band, ...]
    """In the order of the phases."""
    value: float | None
    """Its place, 0..100; None where there is none."""
    words: str
    """The same for who does not see it."""


def range_bar(evidence: Evidence) -> RangeBar:
    """Place a reading's value and ranges on one scale.

    Args:
        evidence: the reading; numbers that are not finite count as absent.

    Example:
        >>> from anchorlens.verdict.mechanism import Evidence
        >>> reading = Evidence("p.r", "p", "m", 1.0, {"Phase 1": (0, 0.5), "Phase 3": (0.5, 2)}, None, 0.0)
        >>> bar = range_bar(reading)
        >>> bar.value, [band.start for band in bar.bands]
        (50.0, [0.0, None, None, 25.0])
    """
    ranges = {
        label: sorted(ends)
        for label, ends in evidence.ranges.items()
        if label in LABELS and all(map(math.isfinite, ends))
    }
    value = evidence.value if evidence.value is not None and math.isfinite(evidence.value) else None
    numbers = [end for ends in ranges.values() for end in ends] + ([] if value is None else [value])
    low = min(numbers, default=0.0)
    size = (max(numbers, default=0.0) - low) or 1.0

    def place(number: float) -> float:
        return round(100 * (number - low) / size, 2)

    bands = []
    words = ["no value" if value is None else f"value {value:.3g}"]
    for label in LABELS:
        left, width = None, 0.0
        if label in ranges:
            start, end = ranges[label]
            left = min(place(start), 100 - LEAST_WIDTH)
            width = max(place(end) - left, LEAST_WIDTH)
            words.append(f"{label} {start:.3g} to {end:.3g}")
        bands.append(Band(SHORT[label], COLOURS[label], left, width))
    return RangeBar(tuple(bands), None if value is None else place(value), "; ".join(words))
