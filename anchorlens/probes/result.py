"""What every probe gives back: numbers, raw values, JSON, a picture."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from torch import Tensor

from anchorlens.configuration import documented
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

T = TypeVar("T")

SCHEMA_VERSION = 1
"""Of `to_dict`; it grows by one when a key changes its meaning or goes."""


@dataclass(frozen=True, eq=False)
class ProbeResult(ABC):
    """Base of the results: a frozen dataclass of numbers, CPU arrays and options, each field documented.

    A result of your own needs `probe`, fields, `headline` and `plot`.
    """

    probe: ClassVar[str]
    """Name of the probe, the same as its function and its file."""
    readings: ClassVar[tuple[str, ...]] = ()
    """Fields that sum the measurement up in one number each, the most telling first; None where it does
    not apply."""
    comparable_axes: ClassVar[bool] = True
    """Whether the axes of two pictures mean the same; those of a t-SNE do not."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep the one-line repr where a dataclass would write one with every array."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = ProbeResult.__repr__

    @abstractmethod
    def headline(self) -> str:
        """The number that matters most, with its meaning, on one line."""

    @abstractmethod
    def plot(self) -> go.Figure:
        """The picture; it computes nothing, shows nothing and saves nothing."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content: every field by its name; NaN and infinity, which JSON lacks, are null.

        Raises:
            ValueError: a field of a result of your own that is no data.
        """
        fields = {}
        for field in dataclasses.fields(self):
            try:
                fields[field.name] = _plain(getattr(self, field.name))
            except TypeError as error:
                raise ValueError(
                    f"the field {field.name} of {type(self).__name__} must be numbers, text, arrays, or "
                    f"lists or dicts of them, got {error}"
                ) from None
        return {"probe": self.probe, "schema_version": SCHEMA_VERSION, **fields}

    def numbers(self) -> dict[str, float | None]:
        """The readings by name."""
        return {name: getattr(self, name) for name in self.readings}

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.headline()})"


@dataclass_transform(frozen_default=True, eq_default=False)
def probe_result(cls: type[T]) -> type[T]:
    """Make a result a frozen dataclass whose fields are described in its help."""
    return documented(dataclass(frozen=True, eq=False, repr=False)(cls))


def number(value: float) -> float | None:
    """A reading: None where NaN says that there is nothing to measure.

    >>> number(0.5), number(float("nan"))
    (0.5, None)
    """
    return None if math.isnan(value) else float(value)


def _plain(value: Any) -> Any:
    """A value as JSON data.

    Raises:
        TypeError: it is none; the message is its type.
    """
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(type(value).__name__)
