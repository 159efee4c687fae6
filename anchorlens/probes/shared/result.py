"""The base class of probe results, with readings, raw values, JSON data and a plot."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anchorlens.configuration import documented
from anchorlens.texts import safe_repr, safe_text
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

T = TypeVar("T")

_MOST_IN_HEADLINE = 5

SCHEMA_VERSION = 1
"""The version of the format of `to_dict`. The version increases by one when a key changes its meaning or is
removed."""


@dataclass(frozen=True, eq=False)
class ProbeResult(ABC):
    """The base class of results, which are frozen dataclasses of documented readings, CPU arrays and options.

    Your own result class must define `probe`, fields, `headline` and `plot`.
    """

    probe: ClassVar[str]
    """The name of the probe, equal to the names of its function and its file."""
    readings: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that contain readings, the most informative reading first. Each reading
    summarises the measurement in one value. A reading that does not apply is `None`."""
    comparable_axes: ClassVar[bool] = True
    """Whether the axes of two plots have the same meaning. The axes of a t-SNE differ between plots."""

    def __init_subclass__(cls, **options: object) -> None:
        """Keep the one-line repr, which a dataclass would replace with a repr of every array."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = ProbeResult.__repr__

    @abstractmethod
    def headline(self) -> str:
        """Return the most important reading, with its meaning, on one line."""

    def in_short(self) -> str:
        """Return what the line of a verdict and a row along training name; an empty text names nothing."""
        return ""

    @abstractmethod
    def plot(self) -> go.Figure:
        """Return the plot as a figure.

        The method does not measure, display or save anything.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return every field by its name, as JSON data, with null for NaN and infinity.

        Raises:
            ValueError: If a field of your own result class cannot be written as JSON.
        """
        fields = {}
        for field in dataclasses.fields(self):
            try:
                fields[field.name] = _plain(getattr(self, field.name))
            except TypeError as error:
                raise ValueError(
                    f"the field {field.name} of {type(self).__name__} must be numbers, text, arrays, or "
                    f"lists or dicts of them, got {error}. Change the field"
                ) from None
        return {"probe": self.probe, "schema_version": SCHEMA_VERSION, **fields}

    def numbers(self) -> dict[str, float | None]:
        """Return the readings by name."""
        return {name: getattr(self, name) for name in self.readings}

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.headline()})"


@dataclass_transform(frozen_default=True, eq_default=False)
def probe_result(cls: type[T]) -> type[T]:
    """Make a result class a frozen dataclass whose `help()` describes the fields."""
    return documented(dataclass(frozen=True, eq=False, repr=False)(cls))


@probe_result
class Numbers(ProbeResult):
    """The result of your own function that returns a number, or a mapping from names to numbers."""

    values: Mapping[str, float | None]
    """The numbers by name, in the order of the mapping. A missing number is `None`."""

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers by name."""
        return dict(self.values)

    def headline(self) -> str:
        """Return at most five names with their numbers."""
        shown = list(self.values.items())[:_MOST_IN_HEADLINE]
        text = ", ".join(f"{name} {'-' if value is None else f'{value:.3g}'}" for name, value in shown)
        return text + (", ..." if len(shown) < len(self.values) else "")

    def plot(self) -> go.Figure:
        """Plot a bar for each number."""
        from anchorlens.plots.from_specs import figure_of
        from anchorlens.tasks.shared.figure_specs import Bars

        measured = {name: value for name, value in self.values.items() if value is not None}
        return figure_of(Bars(self.probe, "", x_title="value", y=measured))


def result_of(name: str, returned: object) -> ProbeResult:
    """Return what a probe returned as a result: a number and a mapping of numbers become `Numbers`.

    Args:
        name: the name of the probe.
        returned: what the probe returned. `None`, NaN and infinity are missing numbers.

    Raises:
        ValueError: If the probe returned something else, or no number at all.
        ValueError: If a result of your own class has no name of its probe.
    """
    if isinstance(returned, ProbeResult):
        if not hasattr(returned, "probe"):
            raise ValueError(
                f"the result {type(returned).__name__} must have the name of its probe, got none. Write "
                f'probe = "{name}" into the class'
            )
        return returned
    named = returned if isinstance(returned, Mapping) else {name: returned}
    values = {safe_text(key): finite_number(safe_text(key), value) for key, value in named.items()}
    if not values or len(values) < len(named):
        raise ValueError(
            f"{name} must return one or more readings with different names, got {safe_repr(list(values))}. "
            "Name each reading"
        )
    return type("Numbers", (Numbers,), {"probe": name, "readings": tuple(values)})(values)


def finite_number(name: str, value: Any) -> float | None:
    """Convert a value to a finite number; `None` for `None`, NaN and infinity.

    Raises:
        ValueError: If the value is something else.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value  # a NumPy or torch scalar
        found = math.nan if plain is None else None if isinstance(plain, str | bytes) else float(plain)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        found = None
    if found is None:
        raise ValueError(
            f"{name} must be a number, or None for an undefined value, got {safe_repr(value)}. Return a "
            "number, a mapping from names to numbers, or a ProbeResult"
        )
    return found if math.isfinite(found) else None


def number(value: float) -> float | None:
    """Return a reading as a float, or `None` if the reading is NaN and thus does not apply.

    >>> number(0.5), number(float("nan"))
    (0.5, None)
    """
    return None if math.isnan(value) else float(value)


def mean_number(values: Float[np.ndarray, " value"]) -> float | None:
    """Return the mean of the finite values, or `None` if no value is finite."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _plain(value: object) -> Any:
    """Return a value as JSON data.

    Raises:
        TypeError: If the value cannot be written as JSON. The message is the type of the value.
    """
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _plain(value.tolist())
    if isinstance(value, dict):
        plain = {str(key): _plain(item) for key, item in value.items()}
        if len(plain) < len(value):
            found = f"a dict whose keys are equal as text, {safe_repr(list(value))}"
            raise TypeError(found)
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(type(value).__name__)
