"""Figures and tables of answers as data, which tasks make and which `figures` and `show` draw."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import DrawnError, DrawnNumber, DrawnShare, LongText, Name, Record, Text, limits
from anchorlens.texts import safe_repr


@dataclass(frozen=True, eq=False)
class _Spec(Record):
    """The base class of the specs, which turns the arrays and ranges of a task into lists for JSON."""

    title: Name
    """The heading above the figure."""
    caption: Text
    """The caption, which explains the figure in a sentence or two."""

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


@frozen_dataclass(eq=False)
class Axes(_Spec):
    """A figure with two axes."""

    x_title: Name
    """The title of the x axis."""
    y_title: Name
    """The title of the y axis, which goes from 0 to 1 for curves and lines."""
    x: Sequence[DrawnNumber] | Sequence[Name]
    """The values on the x axis, ascending; the values of a grid may be names."""


@frozen_dataclass(eq=False)
class Grid(Axes):
    """A heat map of numbers over two axes, as data."""

    y: Sequence[DrawnNumber] | Sequence[Name]
    """The values or names on the y axis."""
    values: Sequence[Sequence[DrawnShare | None]]
    """The values, 0..1, a row for each of `y`; None for a missing value."""
    frame: tuple[DrawnNumber, DrawnNumber, DrawnNumber, DrawnNumber] | None = None
    """A rectangle that is marked: first x, first y, last x, last y."""
    figure_spec: Literal["Grid"] = field(default="Grid", kw_only=True)
    """The type of the figure, in JSON."""


@frozen_dataclass(eq=False)
class Curve(Axes):
    """A curve of proportions over a numeric x axis, as data."""

    y: Sequence[DrawnShare]
    """The proportions, 0..1, one for each of `x`."""
    errors: Sequence[DrawnError]
    """The standard errors of `y`."""
    mark: DrawnNumber | None = None
    """A value of `x` that is marked with a line."""
    figure_spec: Literal["Curve"] = field(default="Curve", kw_only=True)
    """The type of the figure, in JSON."""


@frozen_dataclass(eq=False)
class Lines(Axes):
    """A figure of several curves of proportions over a numeric x axis, as data."""

    y: Mapping[Name, Sequence[DrawnShare | None]]
    """The proportions of each line, 0..1, one for each of `x`; None for a missing value."""
    errors: Mapping[Name, Sequence[DrawnError | None]]
    """The standard errors of `y`, for each line."""
    figure_spec: Literal["Lines"] = field(default="Lines", kw_only=True)
    """The type of the figure, in JSON."""


@frozen_dataclass(eq=False)
class Bars(_Spec):
    """A bar chart of named proportions, as data."""

    x_title: Name
    """The title of the x axis, which goes from 0 to 1."""
    y: Mapping[Name, DrawnShare]
    """The proportion of each name, 0..1, from top to bottom."""
    figure_spec: Literal["Bars"] = field(default="Bars", kw_only=True)
    """The type of the figure, in JSON."""


@frozen_dataclass()
class Sample(Record):
    """One prompt with its expected answer and the model's answer, as text."""

    asked_of: Name
    """The title of the metric of the prompt, such as `OOD`."""
    prompt: LongText
    """The text that the model reads."""
    expected: LongText
    """The correct answer."""
    said: LongText
    """The model's answer."""
    right: bool
    """Whether the model's answer is correct, including the end mark."""


@frozen_dataclass()
class SampleTable(_Spec):
    """A table of some answers of a model."""

    answers: Annotated[tuple[Sample, ...], limits(max_length=100)]
    """The answers, one per row."""
    figure_spec: Literal["SampleTable"] = field(default="SampleTable", kw_only=True)
    """The type of the figure, in JSON."""


@frozen_dataclass()
class ImageGrid(_Spec):
    """A grid of small images, as data."""

    rows: Annotated[tuple[Name, ...], limits(min_length=1, max_length=100)]
    """The titles of the rows, from top to bottom."""
    n_columns: Annotated[int, limits(ge=1, le=100)]
    """The number of images per row."""
    side: Annotated[int, limits(ge=1, le=1000)]
    """The side of an image, in pixels."""
    pixels: Annotated[str, limits(max_length=4_000_000)]
    """The red, green and blue of every pixel, a byte each, row by row of the whole picture: zlib, base64."""
    figure_spec: Literal["ImageGrid"] = field(default="ImageGrid", kw_only=True)
    """The type of the figure, in JSON."""

    @classmethod
    def of(cls, title: str, caption: str, rows: Mapping[str, Any]) -> ImageGrid:
        """Convert images to data.

        Args:
            title: the heading.
            caption: the caption, which explains the images.
            rows: a map from the title of each row to its images, [image, 3, y, x], with values from 0 to 1.
                All rows have the same number of images, and all images have the same size.
        """
        lines = [np.concatenate(list(np.moveaxis(images, 1, -1)), axis=1) for images in rows.values()]
        whole = (np.concatenate(lines) * 255).round().astype(np.uint8)
        n_columns, _, _, side = next(iter(rows.values())).shape
        text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")
        return cls(title, caption, tuple(rows), n_columns, side, text)

    def array(self) -> Any:
        """Return the grid as one picture, an array [y, x, 3] of integers from 0 to 255.

        Raises:
            ValueError: If `pixels` cannot be decompressed, or has the wrong number of bytes.
        """
        shape = (len(self.rows) * self.side, self.n_columns * self.side, 3)
        n_bytes = shape[0] * shape[1] * 3
        try:
            found = zlib.decompressobj().decompress(base64.b64decode(self.pixels), n_bytes + 1)
        except (zlib.error, ValueError):
            found = b""
        if len(found) != n_bytes:
            raise ValueError(
                f"the pixels of {safe_repr(self.title)} must be {n_bytes:,} compressed bytes in base64, got "
                f"{len(found):,}. Make the figure again"
            )
        return np.frombuffer(found, dtype=np.uint8).reshape(shape)


FigureSpec = Grid | Curve | Lines | Bars | SampleTable | ImageGrid
"""The type of any figure as data."""
