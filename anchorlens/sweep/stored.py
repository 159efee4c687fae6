"""What `cell.json` and `failed/*.json` must hold, so that whatever reads them later meets what it expects."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from anchorlens.foreign import printable
from anchorlens.tasks.phases import Cause

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(max_length=200)]
Reading = Annotated[str, Field(pattern=r"^\w{1,100}\.\w{1,100}$")]
"""`probe.number`, as no other column of a sweep's table is called."""
Label = Annotated[str, Field(max_length=100)]


class _Loose(TypedDict):
    """A table that may hold more."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]


class _Phase(_Loose):
    phase: Literal[1, 2, 3] | None
    commutative: bool | None
    label: Label
    reason: Text
    cause: NotRequired[Cause | None]


class _Accuracy(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    value: Share
    standard_error: Annotated[float, Field(ge=0)]
    n_sequences: Count


class _Pair(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    pair: list[int]
    split: Literal["id", "ood"]
    accuracy: _Accuracy


class _Behaviour(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    train: _Accuracy
    train_source: Literal["training set", "fresh noise"]
    train_fresh: _Accuracy
    id: _Accuracy
    ood: _Accuracy | None
    symmetric: _Accuracy | None
    commutativity: _Accuracy | None
    pairs: list[_Pair]
    deviations: dict[Literal["id", "ood"], dict[Annotated[str, Field(pattern=r"^-?\d{1,8}$")], Share]]
    phase: _Phase
    finite: bool
    options: dict[Name, Any]


class _Reading(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    reading: Name
    probe: Name
    meaning: Text
    value: float | None
    ranges: dict[Label, Annotated[list[float], Field(min_length=2, max_length=2)]]
    vote: Label | None
    weight: float


class _Mechanism(_Phase):
    probabilities: dict[Label, Share] | None
    readings: list[_Reading]


class _Checkpoint(_Loose):
    versions: dict[Name, Name]
    path: NotRequired[Text | None]
    kind: NotRequired[Name]


class _Verdict(_Phase):
    agreement: bool | None
    explanation: Text
    warnings: list[Text]
    behaviour: _Behaviour
    mechanism: _Mechanism
    checkpoint: _Checkpoint
    trajectory: Annotated[list[Any], Field(max_length=0)]


class _Cell(_Loose):
    status: Literal["finished", "stopped early", "diverged"]
    error: Text | None
    step: Count
    seconds: float | None
    loss: float | None
    probes: dict[Reading, float | None]
    verdict: _Verdict


class _Failure(_Loose):
    error: Annotated[str, Field(max_length=100_000)]
    details: Annotated[str, Field(max_length=1_000_000)] | None


_CELL, _FAILURE = TypeAdapter(_Cell), TypeAdapter(_Failure)


def checked_cell(content: dict[str, Any]) -> dict[str, Any]:
    """What `cell.json` holds, its texts printable.

    Raises:
        ValueError: something is missing, or of another kind; the message names the first such place.
    """
    _check(_CELL, content)
    behaviour = content["verdict"]["behaviour"]
    numbers = {name: behaviour.pop(name) for name in ("pairs", "deviations")}  # most of it, and no text
    content = _printable(content)
    content["verdict"]["behaviour"] |= numbers
    return content


def checked_failure(content: dict[str, Any]) -> dict[str, Any]:
    """What `failed/ID.json` holds; `details` keeps its line breaks.

    Raises:
        ValueError: something is missing, or of another kind; the message names the first such place.
    """
    _check(_FAILURE, content)
    return _printable(content)


def _check(kind: TypeAdapter[Any], content: dict[str, Any]) -> None:
    try:
        kind.validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(printable(part, 40) for part in first["loc"])
        raise ValueError(f"{place}: {printable(first['msg'])}") from None


_MULTILINE = ("details", "task")
"""A traceback, and what `AnchorTask.describe` says."""


def _printable(value: Any, *, lines: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            _line(name): item if isinstance(item, float) else _printable(item, lines=name in _MULTILINE)
            for name, item in value.items()
        }
    if isinstance(value, str):
        return "\n".join(map(_line, value.split("\n"))) if lines else _line(value)
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _line(text: str) -> str:
    """A text as `printable` gives it; one without a space is left as it is without looking further."""
    return text if text.isprintable() and " " not in text else printable(text, None)
