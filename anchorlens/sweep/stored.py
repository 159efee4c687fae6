"""What `cell.json` and `failed/*.json` must hold, so that whatever reads them later meets what it expects."""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from anchorlens.safe import check_values, may_be_refused, printable
from anchorlens.tasks.kinds import task_class
from anchorlens.tasks.shared.phases import Cause
from anchorlens.tasks.two_anchor.by_position import Solution


def _line(text: str) -> str:
    """A text as one printable line, whole; one without a space is left as it is without looking further."""
    return text if text.isprintable() and " " not in text else printable(text, None)


def _lines(text: str) -> str:
    """A text whose line breaks stay."""
    return "\n".join(map(_line, text.split("\n")))


def _plain(value: Any) -> Any:
    """A little data of any form, its texts printable; line breaks stay.

    Raises:
        ValueError: too much, a number that is not finite, or too many levels.
    """
    check_values(value)
    if len(json.dumps(value)) > MOST_OPTIONS:
        raise ValueError(f"must have at most {MOST_OPTIONS:,} characters as JSON")
    return _printable(value)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_line(name): _printable(item) for name, item in value.items()}
    if isinstance(value, str):
        return _lines(value)
    return [_printable(item) for item in value] if isinstance(value, list) else value


MOST_NUMBERS = 200
"""Numbers that a cell has of its probes, and readings: all stay in memory."""
MOST_OPTIONS = 20_000
"""Characters of the options of an evaluation, as JSON."""
LONGEST_ERROR, LONGEST_DETAILS = 10_000, 100_000
"""Characters of a failed cell's error and its traceback."""
_Line = AfterValidator(functools.lru_cache(maxsize=4096)(_line))
"""Of a short text; most are the same in every cell."""


class _Number:
    """A finite number; what is written as an integer stays one."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        integer = core_schema.int_schema(strict=True)
        decimal = core_schema.float_schema(strict=True, allow_inf_nan=False)
        return core_schema.union_schema(
            [integer, decimal], custom_error_type="float_type", mode="left_to_right"
        )


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Text = Annotated[str, Field(max_length=2000), _Line]
LongText = Annotated[str, Field(max_length=20_000), _Line]
Name = Annotated[str, Field(max_length=200), _Line]
Reading = Annotated[str, Field(pattern=r"^\w{1,100}\.\w{1,100}$")]
"""`probe.number`, as no other column of a sweep's table is called."""
Label = Annotated[str, Field(max_length=100), _Line]
Texts = Annotated[list[Text], Field(max_length=100)]
Options = Annotated[dict[str, Any], AfterValidator(_plain)]


class _Loose(TypedDict):
    """A table that may hold more, of a later version, which is dropped."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")  # type: ignore[misc]


class _Closed(TypedDict):
    """A table that holds nothing else."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")  # type: ignore[misc]


class _Phase(_Loose):
    phase: Literal[1, 2, 3] | None
    commutative: bool | None
    label: Label
    reason: Text
    cause: Cause | None


class _Accuracy(_Closed):
    value: Share
    standard_error: Annotated[float, Field(ge=0)]
    n_sequences: Count


class _Measure(_Closed):
    value: float
    standard_error: Annotated[float, Field(ge=0)]
    n_sequences: Count


class _Pair(_Closed):
    pair: list[int]
    split: Literal["id", "ood"]
    accuracy: _Accuracy


class _Overlap(_Closed):
    n_sequences: Count
    counts: dict[Literal["id", "ood"], Count]


class _Position(_Closed):
    position: Count
    train: _Accuracy | None
    id: _Accuracy | None
    ood: _Accuracy | None
    inferential: _Accuracy | None
    symmetric: _Accuracy | None


class _Behaviour(_Closed):
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
    options: Options
    positions: list[_Position]
    solution: Solution | None
    best_constant: _Accuracy | None
    held_out: Text
    overlap: _Overlap | None


class _Axes(_Closed):
    title: Name
    caption: Text
    x_title: Name
    y_title: Name


class _Grid(_Axes):
    sketch: Literal["Grid"]
    x: list[_Number] | list[Name]
    y: list[_Number] | list[Name]
    values: list[list[Share | None]]
    frame: Annotated[list[_Number], Field(min_length=4, max_length=4)] | None


class _Curve(_Axes):
    sketch: Literal["Curve"]
    x: list[_Number]
    y: list[Share]
    errors: list[Annotated[float, Field(ge=0)]]
    mark: _Number | None


class _Lines(_Axes):
    sketch: Literal["Lines"]
    x: list[_Number]
    y: dict[Name, list[Share | None]]
    errors: dict[Name, list[Annotated[float, Field(ge=0)] | None]]


class _Bars(_Closed):
    sketch: Literal["Bars"]
    title: Name
    caption: Text
    x_title: Name
    y: dict[Name, Share]


class _Answer(_Closed):
    asked_of: Name
    prompt: LongText
    expected: LongText
    said: LongText
    right: bool


class _Transcript(_Closed):
    sketch: Literal["Transcript"]
    title: Name
    caption: Text
    answers: Annotated[list[_Answer], Field(max_length=100)]


class _Mosaic(_Closed):
    sketch: Literal["Mosaic"]
    title: Name
    caption: Text
    rows: Annotated[list[Name], Field(min_length=1, max_length=100)]
    n_columns: Annotated[int, Field(ge=1, le=100)]
    side: Annotated[int, Field(ge=1, le=1000)]
    pixels: Annotated[str, Field(max_length=4_000_000, pattern=r"^[A-Za-z0-9+/=]*$")]


_Sketch = Annotated[_Grid | _Curve | _Lines | _Bars | _Transcript | _Mosaic, Field(discriminator="sketch")]


class _Measured(_Closed):
    """The evaluation of a task other than the two-anchor task."""

    kind: Annotated[str, AfterValidator(lambda kind: task_class(kind).kind)]
    measures: dict[Name, _Measure | None]
    train_source: Name
    chance: Share
    held_out: Text
    overlap: _Overlap | None
    finite: bool
    options: Options
    sketches: Annotated[list[_Sketch], Field(max_length=20)]
    phase: _Phase


_FORMS = ("form: two anchors", "form: measures")
"""Of what a model answers; pydantic names the one that it took in the place of an error."""


def _form(behaviour: Any) -> str:
    return _FORMS[isinstance(behaviour, dict) and "measures" in behaviour]


_Answers = Annotated[
    Annotated[_Behaviour, Tag(_FORMS[0])] | Annotated[_Measured, Tag(_FORMS[1])], Discriminator(_form)
]


class _Reading(_Closed):
    reading: Name
    probe: Name
    meaning: Text
    value: _Number | None
    ranges: dict[Label, Annotated[list[float], Field(min_length=2, max_length=2)]]
    vote: Label | None
    weight: float
    odds: dict[Label, float]
    alone: dict[Label, float]
    sees: Name


class _Opinion(_Phase):
    probabilities: dict[Label, Share] | None


class _Mechanism(_Opinion):
    readings: Annotated[list[_Reading], Field(max_length=MOST_NUMBERS)]
    by_probes: _Opinion | None
    outside: Texts


class _Checkpoint(_Loose):
    versions: Annotated[dict[Name, Name], Field(max_length=100)]
    path: Text | None
    sha256: Name | None
    kind: Name
    step: Count | None


class _Verdict(_Phase):
    agreement: bool | None
    explanation: Text
    warnings: Texts
    behaviour: _Answers
    mechanism: _Mechanism
    checkpoint: _Checkpoint
    trajectory: Annotated[list[Any], Field(max_length=0)]


class _File(_Loose):
    format: Name
    format_version: Count
    id: NotRequired[Name]


class _Cell(_File):
    status: Literal["finished", "stopped early", "diverged"]
    error: Text | None
    step: Count
    seconds: _Number | None
    loss: _Number | None
    probes: Annotated[dict[Reading, _Number | None], Field(max_length=MOST_NUMBERS)]
    verdict: _Verdict


class _Failure(_File):
    error: Annotated[str, Field(max_length=LONGEST_ERROR), AfterValidator(_line)]
    details: Annotated[str, Field(max_length=LONGEST_DETAILS), AfterValidator(_lines)] | None


Kind = TypeAdapter[Any]
CELL: Kind = TypeAdapter(_Cell)
"""What `cell.json` holds."""
FAILURE: Kind = TypeAdapter(_Failure)
"""What `failed/ID.json` holds; `details` keeps its line breaks."""


def quickly_read(kind: Kind, data: bytes, most_values: int) -> dict[str, Any] | None:
    """What `checked` gives of a file's bytes; None where anything is unusual, which `read_json` looks at."""
    if may_be_refused(data, most_values):
        return None
    try:
        return kind.validate_json(data)
    except ValueError:
        return None


def checked(kind: Kind, content: dict[str, Any]) -> dict[str, Any]:
    """What a file holds that `read_json` has read, its texts printable.

    Raises:
        ValueError: something is missing, or of another kind; the message names the first such place.
    """
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(printable(part, 40) for part in first["loc"] if part not in _FORMS)
        raise ValueError(f"{place}: {printable(first['msg'])}") from None
