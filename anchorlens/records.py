"""Results that travel as JSON: what is written and what is read follow from the fields of one dataclass."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self, TypeVar

from anchorlens.files.safe import check_values
from anchorlens.texts import safe_text

T = TypeVar("T")
_MOST_OPTIONS = 20_000
"""Characters of a table of any content, as JSON."""


@functools.lru_cache(maxsize=4096)  # most texts are the same in every cell of a sweep
def _line(text: str) -> str:
    """A text as one printable line, whole; one without a space is left as it is without looking further."""
    return text if text.isprintable() and " " not in text else safe_text(text, None)


def _lines(text: str) -> str:
    """A text whose line breaks stay."""
    return "\n".join(map(_line, text.split("\n")))


def _plain(value: object) -> Any:
    """A little data of any form, its texts printable; line breaks stay.

    Raises:
        ValueError: too much, a number that is not finite, or too many levels.
    """
    check_values(value)
    if len(json.dumps(value)) > _MOST_OPTIONS:
        raise ValueError(f"must have at most {_MOST_OPTIONS:,} characters as JSON")
    return _printable(value)


def _printable(value: object) -> Any:
    if isinstance(value, dict):
        return {_line(name): _printable(item) for name, item in value.items()}
    if isinstance(value, str):
        return _lines(value)
    return [_printable(item) for item in value] if isinstance(value, list) else value


def refusing(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """A function that reads a value, whose ValueError keeps nothing of that value in memory.

    Pydantic keeps the errors of such functions, and an error keeps what stood in its frames.
    """

    def reading(value: object) -> T:
        try:
            return read(value)
        except ValueError as error:
            message = str(error)
        del value
        raise ValueError(message)

    return reading


class Check:
    """Annotations of pydantic that check a field; made late, since importing pydantic takes .09 s."""

    def __init__(self, annotations: Callable[[ModuleType], Sequence[Any]]) -> None:
        self._annotations = annotations

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        import pydantic

        return handler.generate_schema(Annotated[source, *self._annotations(pydantic)])


def limits(**bounds: float) -> Check:
    """Bounds of a number (`ge`, `le`) or of a length (`min_length`, `max_length`)."""
    return Check(lambda pydantic: [pydantic.Field(**bounds)])


def _text(n_characters: int, read: Callable[[str], str] = _line, pattern: str | None = None) -> Check:
    """A text of a file: at most so many characters, made printable when it is read."""
    return Check(
        lambda pydantic: [
            pydantic.Field(max_length=n_characters, pattern=pattern),
            pydantic.AfterValidator(read),
        ]
    )


@dataclass(frozen=True)
class _SixDigits:
    """A number of a picture: six digits in JSON, and an integer where it is one."""

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
    """A field that JSON does not hold; it has its default when the result is read."""

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
"""`probe.number`, as no other column of a sweep's table is called."""
Plain = Annotated[dict[Any, Any], Check(lambda pydantic: [pydantic.AfterValidator(refusing(_plain))])]
"""A table of any content that JSON can hold."""
UNSTORED = _DefaultOnly()
"""`Annotated[T, UNSTORED]` is a field that JSON does not hold."""


class Record:
    """Base of results, frozen dataclasses: their fields say how they are written as JSON, and read."""

    derived: ClassVar[tuple[str, ...]] = ()
    """Attributes that JSON holds besides the fields; when it is read they are dropped."""
    unstored: ClassVar[tuple[str, ...]] = ()
    """Fields that JSON does not hold."""
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
        """JSON-ready content: every field, and what follows from them."""
        return _adapter(type(self)).dump_python(self, mode="json")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave, also after a way through JSON.

        Raises:
            ValueError: something is missing or of another kind; the message names the first such place.
        """
        from pydantic_core import to_json

        return cls.from_json(to_json(values))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_dict` gave from the bytes of a JSON file. Texts are made printable.

        Raises:
            ValueError: as for `from_dict`.
        """
        from pydantic import ValidationError

        try:
            return _adapter(cls).validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "".join(f"{safe_text(part, 40)}." for part in first["loc"])
            if first["type"] == "value_error":  # of a result within this one: it names its own place
                raise ValueError(f"{place}{first.get('ctx', {}).get('error')}") from None
            raise ValueError(f"{place.removesuffix('.')}: {safe_text(first['msg'])}") from None


@functools.cache
def _adapter(cls: type[Record]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _as_json(value: object) -> Any:
    return value.to_dict() if isinstance(value, Record) else value
