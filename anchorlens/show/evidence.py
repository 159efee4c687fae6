"""The table of evidence, with the ranges of each reading by phase and the changes in odds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from anchorlens.tasks.shared.phases import LABELS

if TYPE_CHECKING:
    from anchorlens.verdict.verdict import Evidence, ProbeVerdict

LEAST_WIDTH = 1.5
"""The smallest width of a band in percent, at which a range of one value is visible."""
_LEAST, _MOST = 1.1, 1000.0
"""The limits of a factor. The table omits factors below the first limit. It writes factors from the second
limit on as `1,000 or more`."""


def odds_increases(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the labels whose odds a reading raises, each with its factor (`×3.1`), by descending factor."""
    return _changes("×", evidence.odds.items())


def odds_decreases(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the labels whose odds a reading lowers, each with its factor (`÷3.1`), by descending factor."""
    return _changes("÷", ((label, -nats) for label, nats in evidence.odds.items()))


def _changes(sign: str, odds_in_nats: Iterable[tuple[str, float]]) -> list[tuple[str, str]]:
    ordered = sorted(odds_in_nats, key=lambda item: -item[1])
    return [(label, f"{sign}{factor}") for label, nats in ordered if (factor := _factor(nats))]


def _factor(nats: float) -> str:
    """Return the factor by which odds change as text, which is empty below 1.1.

    >>> _factor(math.log(12.3)), _factor(math.log(1.55)), _factor(0.01), _factor(20.0)
    ('12', '1.6', '', '1,000 or more')
    """
    factor = math.exp(min(nats, 50.0))
    if factor < _LEAST:
        return ""
    if factor >= _MOST:
        return f"{_MOST:,.0f} or more"
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"


def odds(nats: float) -> str:
    """Convert log-odds in nats to odds in words.

    The words begin with `yes` for log-odds above 0, unless the odds are nearly even.

    >>> odds(math.log(3.1)), odds(-math.log(12)), odds(0.01), odds(-9.0)
    ('yes, 3.1 to 1', 'no, 12 to 1', 'even', 'no, 1,000 or more to 1')
    """
    factor = _factor(abs(nats))
    return f"{'yes' if nats > 0 else 'no'}, {factor} to 1" if factor else "even"


def not_measured_in_words(by_probes: ProbeVerdict) -> str:
    """Return a sentence that lists the one or more probes that were not measured."""
    names = ", ".join(by_probes.not_measured)
    return f"Not measured: {names}. Only quick leaves out what could change the label."


class RangeBar(NamedTuple):
    """The value of a reading and its range in each phase, on a common scale."""

    bands: dict[str, tuple[float, float]]
    """The left end and the width of the range of each phase, from 0 to 100. The keys are the labels, in the
    order of the phases."""
    value: float | None
    """The position of the value, from 0 to 100, or None if there is no value."""
    words: str
    """The value and the ranges in words, for readers who cannot see the plot."""


def range_bar(evidence: Evidence) -> RangeBar:
    """Put the value of a reading and its ranges on one scale.

    Args:
        evidence: the reading. A value that is not finite counts as absent.

    Example:
        >>> from anchorlens.verdict.verdict import Evidence
        >>> reading = Evidence("p.r", "p", "m", 1.0, {"Phase 1": (0, 0.5), "Phase 3": (0.5, 2)}, None, 0.0)
        >>> bar = range_bar(reading)
        >>> bar.value, bar.bands
        (50.0, {'Phase 1': (0.0, 25.0), 'Phase 3': (25.0, 75.0)})
    """
    ranges = _finite_ranges(evidence)
    value = evidence.value if evidence.value is not None and math.isfinite(evidence.value) else None
    numbers = [end for ends in ranges.values() for end in ends] + ([] if value is None else [value])
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)

    def place(number: float) -> float:
        return round(100 * (number - low) / ((high - low) or 1.0), 1)

    bands = {}
    for label, (start, end) in ranges.items():
        left = min(place(start), 100 - LEAST_WIDTH)
        bands[label] = left, round(max(place(end) - left, LEAST_WIDTH), 1)
    words = "no value" if value is None else f"value {value:.3g}"
    return RangeBar(bands, None if value is None else place(value), f"{words}{ranges_in_words(evidence)}")


def is_drawn(evidence: Evidence) -> bool:
    """Return whether a plot shows the ranges.

    A plot shows the ranges of phases, and a text states the ranges of solutions.
    """
    return not evidence.ranges or any(label in evidence.ranges for label in LABELS)


def ranges_in_words(evidence: Evidence) -> str:
    """Return the ranges as text to follow a value, such as `; Phase 1 -0.05 to 0.02`."""
    ranges = _finite_ranges(evidence).items()
    return "".join(f"; {label} {start:.3g} to {end:.3g}" for label, (start, end) in ranges)


def _finite_ranges(evidence: Evidence) -> dict[str, list[float]]:
    """Return both ends of each range in ascending order, by label in the order of the phases."""
    ordered = [*(label for label in LABELS if label in evidence.ranges), *evidence.ranges]
    labels = [label for label in dict.fromkeys(ordered) if all(map(math.isfinite, evidence.ranges[label]))]
    return {label: sorted(evidence.ranges[label]) for label in labels}
