"""A reading in the table of evidence, and where it lies among the ranges of the phases, as a drawing.

Not by a template: a page of many cells has tens of thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from anchorlens.show.formats import number, printable_lines
from anchorlens.show.words import Change, lowered, raised
from anchorlens.tasks.shared.phases import COLOURS, LABELS, SHORT

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
    ranges = _finite_ranges(evidence)
    value = evidence.value if evidence.value is not None and math.isfinite(evidence.value) else None
    numbers = [end for ends in ranges.values() for end in ends] + ([] if value is None else [value])
    low = min(numbers, default=0.0)
    size = (max(numbers, default=0.0) - low) or 1.0

    def place(number: float) -> float:
        return round(100 * (number - low) / size, 1)

    bands = []
    for label in LABELS:
        left, width = None, 0.0
        if label in ranges:
            start, end = ranges[label]
            left = min(place(start), 100 - LEAST_WIDTH)
            width = round(max(place(end) - left, LEAST_WIDTH), 1)
        bands.append(Band(SHORT[label], COLOURS[label], left, width))
    words = "no value" if value is None else f"value {value:.3g}"
    return RangeBar(
        tuple(bands), None if value is None else place(value), f"{words}{ranges_in_words(evidence)}"
    )


def ranges_in_words(evidence: Evidence) -> str:
    """The ranges as they stand behind a value: `; Phase 1 -0.05 to 0.02; ...`."""
    ranges = _finite_ranges(evidence).items()
    return "".join(f"; {label} {start:.3g} to {end:.3g}" for label, (start, end) in ranges)


def _finite_ranges(evidence: Evidence) -> dict[str, list[float]]:
    """Label -> both ends, ascending, in the order of the phases."""
    ranges = evidence.ranges
    known = (label for label in LABELS if label in ranges and all(map(math.isfinite, ranges[label])))
    return {label: sorted(ranges[label]) for label in known}


GROUND = "".join(
    f'  <text x="52" y="{y + 9}" text-anchor="end" font-size="10" fill="currentColor">{short}</text>\n'
    f'  <line x1="60" x2="220" y1="{y + 5.5}" y2="{y + 5.5}" '
    'stroke="currentColor" stroke-opacity="0.18"></line>\n'
    for y, short in zip(range(8, 60, 13), SHORT.values(), strict=True)
)
"""Names and lines on which the bands lie, as a piece of SVG."""


def evidence_row(evidence: Evidence) -> Markup:
    """The row of a reading: what it means, its value, its place among the phases, which odds it moves."""
    meaning, reading = map(escape, map(printable_lines, (evidence.meaning, evidence.reading)))
    return Markup(
        '<tr role="row">\n'
        f'      <th scope="row" role="rowheader"><span class="al-meaning">{meaning}</span>'
        f"<code>{reading}</code></th>\n"
        f'      <td role="cell" class="al-number" data-name="Value">{number(evidence.value)}</td>\n'
        f'      <td role="cell">{_drawing(range_bar(evidence))}</td>\n'
        f'      <td role="cell" data-name="Raises">{_changes(raised(evidence))}</td>\n'
        f'      <td role="cell" data-name="Lowers">{_changes(lowered(evidence))}</td>\n'
        "    </tr>"
    )


def _changes(changes: Sequence[Change]) -> str:
    """Labels in their colours, with the factors."""
    dot = (
        '<svg class="al-dot" width="10" height="10" aria-hidden="true" focusable="false">'
        '<rect width="10" height="10" rx="2" fill="{}"></rect></svg>'
    )
    lines = (
        f"{dot.format(COLOURS.get(label, 'currentColor'))}"
        f"{escape(printable_lines(SHORT.get(label, label)))}{f': {factor}' if factor else ''}"
        for label, factor in changes
    )
    return "<br>".join(f'<span class="al-change">{line}</span>' for line in lines) or "none"


def _drawing(bar: RangeBar) -> str:
    """Bands, and a line with an arrowhead at the value."""
    parts = [
        '<svg class="al-range" viewBox="0 0 224 62" width="224" height="62" role="img" '
        f'aria-label="{bar.words}">\n  {GROUND}\n'
    ]
    parts += [
        f'  <rect x="{round(60 + 1.6 * band.start, 2)}" y="{9.5 + 13 * k}" '
        f'width="{round(1.6 * band.width, 2)}" height="8" rx="2" fill="{band.colour}"></rect>\n'
        for k, band in enumerate(bar.bands)
        if band.start is not None
    ]
    if bar.value is not None:
        x = round(60 + 1.6 * bar.value, 2)
        parts.append(
            f'  <line x1="{x}" x2="{x}" y1="5" y2="61" stroke="currentColor" stroke-width="1.6"></line>\n'
            f'  <path d="M{x - 4} 0 h8 l-4 6 z" fill="currentColor"></path>\n'
        )
    return "".join([*parts, "</svg>\n"])
