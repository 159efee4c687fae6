"""What `cell.json` and `failed/*.json` hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from annotated_types import Len

from anchorlens.configuration import documented
from anchorlens.records import Count, Lines, LongText, Name, ReadingName, Record
from anchorlens.safe import may_be_refused
from anchorlens.verdict.verdict import Verdict

LONGEST_ERROR, LONGEST_DETAILS = 10_000, 100_000
"""Characters of a failed cell's error and its traceback, as they are written."""
Stored = TypeVar("Stored", bound="_File")


@dataclass(frozen=True, eq=False, kw_only=True)
class _File(Record):
    format: Name = ""
    format_version: Count = 0


@documented
@dataclass(frozen=True, eq=False, kw_only=True)
class CellContent(_File):
    """What was trained and measured in a cell."""

    status: Literal["finished", "stopped early", "diverged"]
    """How its run ended."""
    error: LongText | None = None
    """Why it diverged, in a line."""
    step: Count
    """Optimizer steps taken."""
    seconds: float | None
    """Of training."""
    loss: float | None
    """Of the last batch that was logged, in nats."""
    passed_at: Annotated[Mapping[Name, Count | None], Len(0, 10)] = field(default_factory=dict)
    """`train`, `id`, `ood` -> the step from which on it passes its threshold of the phases; None where it
    does not pass at the last evaluation. Empty for a task that has no phases."""
    probes: Annotated[Mapping[ReadingName, float | None], Len(0, 200)]
    """`probe.number` of the probes that need no forward pass -> value, None where it is not defined."""
    verdict: Verdict
    """What was measured of its last checkpoint."""


@documented
@dataclass(frozen=True, eq=False, kw_only=True)
class Failure(_File):
    """Why a cell cannot be trained."""

    error: LongText
    """In a line."""
    details: Lines | None = None
    """The traceback."""


def quickly_read(kind: type[Stored], data: bytes, most_values: int) -> Stored | None:
    """What a file's bytes hold; None where anything is unusual, which `read_json` looks at."""
    if may_be_refused(data, most_values):
        return None
    try:
        return kind.from_json(data)
    except ValueError:
        return None
