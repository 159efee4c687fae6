"""Pictures and tables of answers as data, which a task gives and the room that draws draws."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorlens.configuration import documented
from anchorlens.safe import shown


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
    x: Sequence[Any]
    """Values across, ascending; of a grid they may be names."""


@documented
@dataclass(frozen=True, eq=False)
class Grid(Axes):
    """A picture of numbers over two axes, as data; the room that draws draws it."""

    y: Sequence[Any]
    """Values upwards, or names."""
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


@documented
@dataclass(frozen=True)
class Mosaic:
    """Small images in rows, as data."""

    title: str
    """Heading above them."""
    caption: str
    """How to read them."""
    rows: Sequence[str]
    """What each row shows, from top to bottom."""
    n_columns: int
    """Images in a row."""
    side: int
    """Pixels of an image's side."""
    pixels: str
    """Red, green and blue of every pixel, a byte each, row by row of the whole: zlib, base64."""

    @classmethod
    def of(cls, title: str, caption: str, rows: Mapping[str, Any]) -> Mosaic:
        """Images as data.

        Args:
            title: heading.
            caption: how to read them.
            rows: what a row shows -> its images [image, 3, y, x], 0..1, all of one size and as many in each.
        """
        lines = [np.concatenate(list(np.moveaxis(images, 1, -1)), axis=1) for images in rows.values()]
        whole = (np.concatenate(lines) * 255).round().astype(np.uint8)
        n_columns, _, _, side = next(iter(rows.values())).shape
        text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")
        return cls(title, caption, tuple(rows), n_columns, side, text)

    def array(self) -> Any:
        """The whole as [y, x, 3], 0..255.

        Raises:
            ValueError: the data are not as many pixels as there are.
        """
        shape = (len(self.rows) * self.side, self.n_columns * self.side, 3)
        n_bytes = shape[0] * shape[1] * 3
        try:
            found = zlib.decompressobj().decompress(base64.b64decode(self.pixels), n_bytes + 1)
        except (zlib.error, ValueError) as error:
            raise ValueError(f"the pixels of {shown(self.title)} cannot be read: {error}") from None
        if len(found) != n_bytes:
            raise ValueError(f"{shown(self.title)} must have {n_bytes:,} bytes of pixels, got {len(found):,}")
        return np.frombuffer(found, dtype=np.uint8).reshape(shape)


Sketch = Grid | Curve | Lines | Bars | Transcript | Mosaic
"""A picture as data."""
