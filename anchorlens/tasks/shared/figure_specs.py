"""Pictures and tables of answers as data; tasks make them, `figures` and `show` draw them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from anchorlens.configuration import documented
from anchorlens.records import DrawnError, DrawnNumber, DrawnShare, LongText, Name, Record, Text, limits
from anchorlens.texts import safe_repr


@dataclass(frozen=True, eq=False)
class _Spec(Record):
    """Base of the specs: arrays and ranges that a task gives become lists, which JSON can hold."""

    title: Name
    """Heading above it."""
    caption: Text
    """How to read it, in a sentence or two."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, _plain(getattr(self, name)))


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return [_plain(item) for item in value] if isinstance(value, list | range) else value


@documented
@dataclass(frozen=True, eq=False)
class Axes(_Spec):
    """A picture with two axes."""

    x_title: Name
    """Title of the x axis."""
    y_title: Name
    """Title of the y axis, which goes from 0 to 1 for curves and lines."""
    x: Sequence[DrawnNumber] | Sequence[Name]
    """Values on the x axis, ascending; for a grid they may be names."""


@documented
@dataclass(frozen=True, eq=False)
class Grid(Axes):
    """A heat map of numbers over two axes, as data."""

    y: Sequence[DrawnNumber] | Sequence[Name]
    """Values or names on the y axis."""
    values: Sequence[Sequence[DrawnShare | None]]
    """0..1, a row for each of `y`; None where there is no value."""
    frame: tuple[DrawnNumber, DrawnNumber, DrawnNumber, DrawnNumber] | None = None
    """A rectangle that is marked: first x, first y, last x, last y."""
    figure_spec: Literal["Grid"] = field(default="Grid", kw_only=True)
    """Which of the pictures it is, in JSON."""


@documented
@dataclass(frozen=True, eq=False)
class Curve(Axes):
    """A picture of shares against a number, as data."""

    y: Sequence[DrawnShare]
    """0..1, one for each of `x`."""
    errors: Sequence[DrawnError]
    """Standard errors of `y`."""
    mark: DrawnNumber | None = None
    """A value of `x` that is marked with a line."""
    figure_spec: Literal["Curve"] = field(default="Curve", kw_only=True)
    """Which of the pictures it is, in JSON."""


@documented
@dataclass(frozen=True, eq=False)
class Lines(Axes):
    """A picture of several shares against a number, as data."""

    y: Mapping[Name, Sequence[DrawnShare | None]]
    """Name of a line -> 0..1, one for each of `x`; None where there is no value."""
    errors: Mapping[Name, Sequence[DrawnError | None]]
    """Name of a line -> standard errors of `y`."""
    figure_spec: Literal["Lines"] = field(default="Lines", kw_only=True)
    """Which of the pictures it is, in JSON."""


@documented
@dataclass(frozen=True, eq=False)
class Bars(_Spec):
    """A picture of shares of named things, as data."""

    x_title: Name
    """Title of the x axis, which goes from 0 to 1."""
    y: Mapping[Name, DrawnShare]
    """Name -> 0..1, from top to bottom."""
    figure_spec: Literal["Bars"] = field(default="Bars", kw_only=True)
    """Which of the pictures it is, in JSON."""


@documented
@dataclass(frozen=True)
class Sample(Record):
    """One answer of a model, in words."""

    asked_of: Name
    """Title of the metric it belongs to, such as `OOD`."""
    prompt: LongText
    """What the model reads."""
    expected: LongText
    """The right answer."""
    said: LongText
    """The model's answer."""
    right: bool
    """Whether that is right, the end mark too."""


@documented
@dataclass(frozen=True)
class SampleTable(_Spec):
    """Some of the answers, as a table."""

    answers: Annotated[tuple[Sample, ...], limits(max_length=100)]
    """A row for each."""
    figure_spec: Literal["SampleTable"] = field(default="SampleTable", kw_only=True)
    """Which of the pictures it is, in JSON."""


@documented
@dataclass(frozen=True)
class ImageGrid(_Spec):
    """Small images in rows, as data."""

    rows: Annotated[tuple[Name, ...], limits(min_length=1, max_length=100)]
    """What each row shows, from top to bottom."""
    n_columns: Annotated[int, limits(ge=1, le=100)]
    """Images in a row."""
    side: Annotated[int, limits(ge=1, le=1000)]
    """Pixels of an image's side."""
    pixels: Annotated[str, limits(max_length=4_000_000)]
    """Red, green and blue of every pixel, a byte each, row by row of the whole: zlib, base64."""
    figure_spec: Literal["ImageGrid"] = field(default="ImageGrid", kw_only=True)
    """Which of the pictures it is, in JSON."""

    @classmethod
    def of(cls, title: str, caption: str, rows: Mapping[str, Any]) -> ImageGrid:
        """Images as data.

        Args:
            title: heading.
            caption: how to read them.
            rows: what a row shows -> its images [image, 3, y, x], 0..1, of the same size and number in each.
        """
        lines = [np.concatenate(list(np.moveaxis(images, 1, -1)), axis=1) for images in rows.values()]
        whole = (np.concatenate(lines) * 255).round().astype(np.uint8)
        n_columns, _, _, side = next(iter(rows.values())).shape
        text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")
        return cls(title, caption, tuple(rows), n_columns, side, text)

    def array(self) -> Any:
        """The whole as [y, x, 3], 0..255.

        Raises:
            ValueError: the data do not have that number of pixels.
        """
        shape = (len(self.rows) * self.side, self.n_columns * self.side, 3)
        n_bytes = shape[0] * shape[1] * 3
        try:
            found = zlib.decompressobj().decompress(base64.b64decode(self.pixels), n_bytes + 1)
        except (zlib.error, ValueError) as error:
            raise ValueError(f"the pixels of {safe_repr(self.title)} cannot be read: {error}") from None
        if len(found) != n_bytes:
            raise ValueError(
                f"{safe_repr(self.title)} must have {n_bytes:,} bytes of pixels, got {len(found):,}"
            )
        return np.frombuffer(found, dtype=np.uint8).reshape(shape)


FigureSpec = Grid | Curve | Lines | Bars | SampleTable | ImageGrid
"""A picture as data."""
