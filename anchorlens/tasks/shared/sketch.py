"""Pictures and tables of answers as data, which a task gives and the room that draws draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchorlens.configuration import documented


@documented
@dataclass(frozen=True, eq=False)
class Axes:
    """What every picture has: words above it, and two axes."""

    title: str
    """Heading above the picture."""
    caption: str
    """How to read it, in a sentence or two."""
    x_title: str
    """Under the axis across."""
    y_title: str
    """Beside the axis upwards, which of curves and lines goes from 0 to 1."""
    x: Sequence[float]
    """Values across, ascending."""


@documented
@dataclass(frozen=True, eq=False)
class Grid(Axes):
    """A picture of numbers over two axes, as data; the room that draws draws it."""

    y: Sequence[float]
    """Values upwards."""
    values: Sequence[Sequence[float | None]]
    """0..1, a row for each of `y`, None where there is nothing."""
    frame: tuple[float, float, float, float] | None = None
    """A rectangle that is marked: first x, first y, last x, last y."""


@documented
@dataclass(frozen=True, eq=False)
class Curve(Axes):
    """A picture of shares against a number, as data."""

    y: Sequence[float]
    """0..1, one for each of `x`."""
    errors: Sequence[float]
    """Standard errors of `y`."""
    mark: float | None = None
    """A value of `x` at which a line stands."""


@documented
@dataclass(frozen=True, eq=False)
class Lines(Axes):
    """A picture of several shares against a number, as data."""

    y: Mapping[str, Sequence[float | None]]
    """Name of a line -> 0..1, one for each of `x`; None where there is nothing."""
    errors: Mapping[str, Sequence[float | None]]
    """Name of a line -> standard errors of `y`."""


@documented
@dataclass(frozen=True, eq=False)
class Bars:
    """A picture of shares of named things, as data."""

    title: str
    """Heading above the bars."""
    caption: str
    """How to read it, in a sentence or two."""
    x_title: str
    """Under the axis across, which goes from 0 to 1."""
    y: Mapping[str, float]
    """Name -> 0..1, from top to bottom."""


@documented
@dataclass(frozen=True)
class Answer:
    """One answer of a model, in words."""

    asked_of: str
    """Title of the metric that asks it, `OOD`."""
    prompt: str
    """What the model reads."""
    expected: str
    """What it is to say."""
    said: str
    """What it says."""
    right: bool
    """Whether that is right, the end mark too."""


@documented
@dataclass(frozen=True)
class Transcript:
    """Some of the answers, as a table."""

    title: str
    """Heading above the table."""
    caption: str
    """How they were chosen."""
    answers: Sequence[Answer]
    """A row for each."""


Sketch = Grid | Curve | Lines | Bars | Transcript
"""A picture as data."""
