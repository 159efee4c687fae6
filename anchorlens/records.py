"""Results as JSON: the fields of one dataclass determine the written and the loaded content."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from anchorlens.texts import safe_text

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST_OPTIONS = 20_000
"""The largest number of JSON characters of a table of any content."""


@functools.lru_cache(maxsize=4096)  # most texts are the same in every cell of a sweep
def _line(text: str) -> str:
    """Convert a text to one printable line of full length; a printable text without spaces is unchanged."""
    return text if text.isprintable() and " " not in text else safe_text(text, None)


def _lines(text: str) -> str:
    """Make a text printable, with its line breaks."""
    return "\n".join(map(_line, text.split("\n")))


def _plain(value: object) -> Any:
    """Check a small amount of data of any form, and make its texts printable, with their line breaks.

    Raises:
        ValueError: If the data are too large, or contain a number that is not finite.
    """
    if len(json.dumps(value, allow_nan=False)) > _MOST_OPTIONS:
        raise ValueError(
            f"the content must have at most {_MOST_OPTIONS:,} characters as JSON, got more. Shorten the "
            "content"
        )
    return _printable(value)


def _printable(value: object) -> Any:
    if isinstance(value, dict):
        return {_line(name): _printable(item) for name, item in value.items()}
    if isinstance(value, str):
        return _lines(value)
    return [_printable(item) for item in value] if isinstance(value, list) else value


class Check:
    """The Pydantic annotations that check a field.

    The annotations are created late, because Pydantic takes 0.09 s to import.
    """

    def __init__(self, annotations: Callable[[ModuleType], Sequence[Any]]) -> None:
        self._annotations = annotations

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        import pydantic

        return handler.generate_schema(Annotated[source, *self._annotations(pydantic)])


def limits(**bounds: float) -> Check:
    """Create a check of the bounds of a number (`ge`, `le`) or a length (`min_length`, `max_length`)."""
    return Check(lambda pydantic: [pydantic.Field(**bounds)])


def _text(n_characters: int, read: Callable[[str], str] = _line, pattern: str | None = None) -> Check:
    """Create a check of a file's text: at most `n_characters` characters, made printable on loading."""
    bounds = {"max_length": n_characters, "pattern": pattern}
    return Check(lambda pydantic: [pydantic.Field(**bounds), pydantic.AfterValidator(read)])


@dataclass(frozen=True)
class _SixDigits:
    """A number of a picture, with six digits in JSON; integers stay integers."""

    least: int | None = None
    most: int | None = None

    def __get_pydantic_core_schema__(self, *_: object) -> Any:
        from pydantic_core import core_schema

        integer = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        decimal = core_schema.float_schema(strict=True, ge=self.least, le=self.most, allow_inf_nan=False)
        return core_schema.union_schema(
            [integer, decimal],
            mode="left_to_right",
            custom_error_type="float_type",
            serialization=core_schema.plain_serializer_function_ser_schema(_rounded),
        )


def _rounded(value: float) -> float:
    return int(value) if float(value).is_integer() else round(float(value), 6)


class _DefaultOnly:
    """A field that JSON does not contain; a loaded result has the default of the field."""

    def __get_pydantic_core_schema__(self, *_: object) -> Any:
        from pydantic_core import core_schema

        nothing = core_schema.plain_serializer_function_ser_schema(lambda _: None)
        anything = core_schema.any_schema(serialization=nothing)
        return core_schema.with_default_schema(anything, default=None)


Share = Annotated[float, limits(ge=0, le=1)]
Count = Annotated[int, limits(ge=0, le=10**15)]
Name = Annotated[str, _text(200)]
Text = Annotated[str, _text(2000)]
LongText = Annotated[str, _text(20_000)]
Lines = Annotated[str, _text(100_000, _lines)]
DrawnNumber = Annotated[float, _SixDigits()]
DrawnShare = Annotated[float, _SixDigits(0, 1)]
DrawnError = Annotated[float, _SixDigits(0)]
ReadingName = Annotated[str, _text(201, pattern=r"^\w{1,100}\.\w{1,100}$")]
"""The name `probe.reading`, which no other column of a sweep's table has."""
Plain = Annotated[dict[Any, Any], Check(lambda pydantic: [pydantic.AfterValidator(_plain)])]
"""A table of any content that JSON can contain."""
UNSTORED = _DefaultOnly()
"""The mark of a field that JSON does not contain: `Annotated[T, UNSTORED]`."""


class Record:
    """The base class of results: frozen dataclasses that can be written as JSON and loaded from JSON."""

    derived: ClassVar[tuple[str, ...]] = ()
    """The attributes that JSON contains in addition to the fields; loading drops these attributes."""
    unstored: ClassVar[tuple[str, ...]] = ()
    """The fields that JSON does not contain."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "strict": True,
        "allow_inf_nan": False,
        "extra": "ignore",
    }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = handler(source)

        def write(result: Any, fields: Any) -> dict[str, Any]:
            stored = {name: value for name, value in fields(result).items() if name not in cls.unstored}
            return stored | {name: _as_json(getattr(result, name)) for name in cls.derived}

        if cls.derived or cls.unstored:
            schema["serialization"] = core_schema.wrap_serializer_function_ser_schema(write)
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Return every field, and the attributes derived from the fields, as JSON data."""
        return _adapter(type(self)).dump_python(self, mode="json")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Load the result of `to_dict`, also after a conversion to JSON and back.

        Raises:
            ValueError: If a value is missing or has the wrong type. The message names the first invalid
                value.
        """
        from pydantic_core import to_json

        return cls.from_json(to_json(values))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Load the result of `to_dict` from the bytes of a JSON file, and make all texts printable.

        Raises:
            ValueError: If a value is missing or has the wrong type, as for `from_dict`.
        """
        from pydantic import ValidationError

        try:
            return _adapter(cls).validate_json(data)
        except ValidationError as error:
            raise ValueError(_first_problem(error)) from None


def _first_problem(error: ValidationError) -> str:
    """Return the first problem in words, in a frame to which the new error does not refer: no cycle."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = "".join(f"{safe_text(part, 40)}." for part in first["loc"])
    if first["type"] == "value_error":  # an error of a nested result, which names its location
        return f"{place}{first.get('ctx', {}).get('error')}"
    return f"{place.removesuffix('.')}: {safe_text(first['msg'])}"


@functools.cache
def _adapter(cls: type[Record]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _as_json(value: object) -> Any:
    return value.to_dict() if isinstance(value, Record) else value
