"""The content of `cell.json` and `failed/*.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from anchorlens.configuration import documented
from anchorlens.records import Count, Lines, LongText, Name, ReadingName, Record, limits
from anchorlens.safe import may_be_refused
from anchorlens.verdict.verdict import Verdict

LONGEST_ERROR, LONGEST_DETAILS = 10_000, 100_000
"""The largest number of characters stored of a failed cell's error and traceback."""
Stored = TypeVar("Stored", bound="_File")


@dataclass(frozen=True, eq=False, kw_only=True)
class _File(Record):
    format: Name = ""
    format_version: Count = 0


@documented
@dataclass(frozen=True, eq=False, kw_only=True)
class CellContent(_File):
    """The outcome and measurements of a finished run."""

    status: Literal["finished", "stopped early", "diverged"]
    """How the run ended."""
    error: LongText | None = None
    """The reason why the run diverged, in one line."""
    step: Count
    """The number of optimiser steps."""
    seconds: Annotated[float, limits(ge=0, le=10**9)] | None
    """The training time in seconds."""
    loss: float | None
    """The loss of the last logged batch, in nats."""
    passed_at: Annotated[Mapping[Name, Count | None], limits(max_length=10)] = field(default_factory=dict)
    """The step from which on each accuracy (`train`, `id`, `ood`) passes the threshold of its phase. The step
    is None if the accuracy does not pass at the last evaluation. The map is empty for a task without
    phases."""
    probes: Annotated[Mapping[ReadingName, float | None], limits(max_length=200)]
    """The value of each `probe.reading` that does not need a forward pass, or None if the value is not
    defined."""
    verdict: Verdict
    """The verdict on the last checkpoint."""


@documented
@dataclass(frozen=True, eq=False, kw_only=True)
class Failure(_File):
    """The reason why a run cannot be trained."""

    error: LongText
    """The error in one line."""
    details: Lines | None = None
    """The traceback."""


def quickly_read(kind: type[Stored], data: bytes, most_values: int) -> Stored | None:
    """Parse a file's bytes fast, or return None for content that needs `read_json`."""
    if may_be_refused(data, most_values):
        return None
    try:
        return kind.from_json(data)
    except ValueError:
        return None
