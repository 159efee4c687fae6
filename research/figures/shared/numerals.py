"""How replication.md writes numbers: 0.94, 71%, 1e-3, and values over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

FEW = 3
"""Up to so many seeds each one's value is written; of more, their mean and its interval."""
CONFIDENCE = 0.95
"""Of the interval: Student's t over the seeds."""

Values = Mapping[str, Any] | Iterable[Any]
"""By seed, or in the order of the seeds; None is unknown."""


def number(value: float | None, digits: int | None = 2) -> str:
    """A number to so many digits, or as many as it has.

    >>> number(0.944), number(-0.026), number(1.0), number(-0.001), number(36.84, 1), number(1000, 0)
    ('0.94', '-0.03', '1.00', '0.00', '36.8', '1,000')
    >>> number(7.5, None), number(7.0, None), number(None)  # unknown
    ('7.5', '7', '-')
    """
    if value is None:
        return "-"
    text = f"{value:g}" if digits is None else f"{value:,.{digits}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")  # nothing is less than nothing
    return text


def short(value: float | str) -> str:
    """A setting with the digits that it has: gamma, a weight decay, a learning rate.

    >>> short("0.5"), short(0.45), short(1), short(0.001), short(0.0004), short(0)
    ('0.5', '0.45', '1', '1e-3', '4e-4', '0')
    """
    value = float(value)
    if value and abs(value) < 0.005:
        digits, power = f"{value:e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:g}"


def percent(share: float | None) -> str:
    """A proportion as a percentage: 68%.

    >>> percent(0.679), percent(None)
    ('68%', '-')
    """
    return "-" if share is None else f"{share:.0%}"


def values_of(values: Values) -> list[Any]:
    """In the order of the seeds."""
    return list(values.values() if isinstance(values, Mapping) else values)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the mean by Student's t.

    >>> low, high = interval([1.0, 2.0, 3.0, 4.0])  # 2.5 +- 3.182 * 1.291 / 2
    >>> round(low, 2), round(high, 2)
    (0.45, 4.55)
    """
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def mean_and_interval(values: Sequence[float], digits: int | None = 2) -> str:
    """The mean and its 95% interval.

    >>> mean_and_interval([1.0, 2.0, 3.0, 4.0])
    '2.50 [0.45, 4.55]'
    """
    low, high = (number(end, digits) for end in interval(values))
    return f"{number(fmean(values), digits)} [{low}, {high}]"


def each(values: Values, digits: int | None = 2) -> str:
    """Every seed's value; of more than three seeds the mean and its 95% interval.

    >>> each({"0": 0.141, "1": 0.07}), each([0.5, 1.0, 0.75, 0.75]), each([])
    ('0.14 0.07', '0.75 [0.43, 1.07]', '-')
    """
    listed = values_of(values)
    known = [float(value) for value in listed if value is not None]
    if len(known) <= FEW:
        return one_by_one(listed, digits)
    return mean_and_interval(known, digits)


def one_by_one(values: Values, digits: int | None = 2) -> str:
    """Every seed's value, however many there are: where seeds fall into kinds, a mean is of none of them.

    >>> one_by_one([0.0, 1.0, 1.0, None])
    '0.00 1.00 1.00 -'
    """
    return " ".join(number(value, digits) for value in values_of(values)) or "-"


def each_percent(values: Values) -> str:
    """`each` of shares, as percentages.

    >>> each_percent({"0": 0.118, "1": 0.12, "2": 0.5}), each_percent([0.5] * 4)
    ('12%, 12% and 50%', '50% [50%, 50%]')
    """
    listed = [None if value is None else 100 * value for value in values_of(values)]
    if sum(value is not None for value in listed) <= FEW:
        return joined("-" if value is None else f"{number(value, 0)}%" for value in listed)
    mean, low, high = each(listed, 0).translate(str.maketrans("", "", "[],")).split()
    return f"{mean}% [{low}%, {high}%]"


def joined(words: Iterable[Any]) -> str:
    """An enumeration.

    >>> joined([2]), joined([2, 3]), joined("abc")
    ('2', '2 and 3', 'a, b and c')
    """
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last
