"""The function `grid`: runs with every combination of given values of some fields."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from anchorlens.configuration import field_types
from anchorlens.recipes import (
    Parts,
    RunConfig,
    field_owners,
    merged,
    preset_parts,
    same_value,
    sorted_by_part,
)
from anchorlens.safe import read_json
from anchorlens.tasks import Task
from anchorlens.texts import safe_repr

ALIASES = {"layers": "n_layers", "heads": "n_heads", "from": "start"}
"""The short names of often swept fields, for the command line and the axes of a diagram."""
MOST_CELLS = 100_000
_LARGEST_EXPONENT = 400
"""The largest exponent (of ten) of a number on an axis, beyond the range of floats."""
_MOST_DIGITS = 50
"""The largest number of digits of a number on an axis."""


def grid(
    base: str | Parts | RunConfig = "quick", axes: Mapping[str, Any] | None = None, **fields: object
) -> list[RunConfig]:
    """Return a run for every combination of the axes' values.

    Args:
        base: a preset's name, a run such as `preset("quick")`, or the parts of a run's configuration. The
            fields of the model that follow from the task are fitted again in each run.
        axes: a map from fields of the task, ModelConfig or TrainConfig to their values. The values are a
            sequence, or a text as on the command line (`axis_values`). The last axis varies fastest.
        **fields: the values of fields that are equal in all runs.

    Returns:
        The runs, one for each combination of values, without repetition.

    Raises:
        ValueError: If a preset or field is unknown, or a value is invalid. Each axis must have at least one
            value. There may be at most 100,000 runs.

    Example:
        >>> runs = grid("quick", {"gamma": "0.3:0.8:0.25", "seed": "0:3"}, steps=1000)
        >>> [(run.model_config.gamma, run.train_config.seed) for run in runs][:4]
        [(0.3, 0), (0.3, 1), (0.3, 2), (0.55, 0)]

    Source: the grids of arXiv 2405.05409 and 2501.08537.
    """
    parts = preset_parts(base) if isinstance(base, str) else base
    if isinstance(parts, RunConfig):
        fitted = parts.task.model_class.for_task(parts.task).to_dict()
        model = {name: value for name, value in parts.model_config.to_dict().items() if value != fitted[name]}
        parts = parts.to_dict() | {"model": model}
    if not isinstance(parts, Mapping):
        raise ValueError(
            f"base must be a preset's name, a run or a dict of its parts, got {safe_repr(base)}. Give one"
        )
    parts = merged(parts, sorted_by_part(fields))
    values = {name: axis_values(name, axis) for name, axis in (axes or {}).items()}
    if both := sorted(fields.keys() & values.keys()):
        raise ValueError(
            f"{both[0]} must have either a value or an axis, got both. Omit the value or the axis."
        )
    if (n_cells := math.prod(map(len, values.values()))) > MOST_CELLS:
        raise ValueError(
            f"a sweep must have at most {MOST_CELLS:,} runs, got {n_cells:,}. Give fewer values."
        )
    tasks: dict[Any, Task] = {}  # cells with equal tasks share one object, whose tables are made once
    runs = []
    for cell in itertools.product(*values.values()):
        fields_of_cell = merged(parts, sorted_by_part(dict(zip(values, cell, strict=True))))
        # Ids are unique, since all values stay alive.
        key = tuple((name, id(value)) for name, value in fields_of_cell.get("task", {}).items())
        runs.append(RunConfig.from_dict(fields_of_cell, tasks.get(key), is_new=True))
        tasks[key] = runs[-1].task
    return list({same_value(run.to_dict()): run for run in runs}.values())


def axis_values(name: str, axis: Any) -> tuple[Any, ...]:
    """Return the values of one axis.

    Args:
        name: the name of the field.
        axis: a sequence of values, one value, or a text. A text contains values or ranges separated by
            commas. The range `a:b` contains the integers a, ..., b - 1, like Python's range. The range
            `a:b:step` goes from a to b in steps and includes both ends.

    Returns:
        The values in the given order, without repetition.

    Raises:
        ValueError: If the field is unknown, the axis is empty, or a range is invalid.

    >>> axis_values("gamma", "0.3:0.5:0.05")
    (0.3, 0.35, 0.4, 0.45, 0.5)
    >>> axis_values("seed", "0:3"), axis_values("weight_decay", "0,0.01,1"), axis_values("n_layers", [2, 3])
    ((0, 1, 2), (0, 0.01, 1), (2, 3))
    """
    sorted_by_part({name: None})
    if isinstance(axis, str):
        axis = _read_text(name, axis)
    elif not isinstance(axis, Sequence) and hasattr(axis, "tolist"):
        axis = axis.tolist()
    several = isinstance(axis, Sequence | Iterator)
    values = list(itertools.islice(axis, MOST_CELLS + 1)) if several else [axis]
    if not 0 < len(values) <= MOST_CELLS:
        raise ValueError(
            f"the axis {name} must have at least one value and at most {MOST_CELLS:,} values, got "
            f"{'more' if values else 'none'}. Give a value, or use a larger step."
        )
    return tuple({repr(value): value for value in values}.values())


def _read_text(name: str, text: str) -> Iterator[Any]:
    """Read the values of an axis from text; JSON for fields other than numbers, words or None."""
    kinds = _kinds(name)
    if not all(kind in (int, float, str, bool, type(None)) or isinstance(kind, str) for kind in kinds):
        try:
            yield read_json(text)
        except ValueError as error:
            raise ValueError(f"{name} must be JSON, got {safe_repr(text)}: {error}") from None
        return
    for part in text.split(","):
        if ":" in part and kinds & {int, float} and "=" not in part:
            yield from _range(name, part.strip())
        else:
            yield _read_value(part.strip(), kinds)


def _range(name: str, text: str) -> Iterator[int | float]:
    """Yield the values of a range."""
    bounds = [_decimal(bound.strip()) for bound in text.split(":")]
    numbers = [bound for bound in bounds if bound is not None]
    if len(numbers) == 2 and all(number == number.to_integral_value() for number in numbers):
        numbers = [numbers[0], numbers[1] - 1, Decimal(1)]
    if None in bounds or len(numbers) != 3 or numbers[2] <= 0 or numbers[1] < numbers[0]:
        raise ValueError(
            f"a range of {name} must be first:last:step, or first:end with integers, got {safe_repr(text)}. "
            "Choose a positive step. The first value must be at most `last`, or less than `end`."
        )
    first, last, step = numbers
    for k in range(int((last - first) / step) + 1):
        yield _plain(first + k * step)


def _decimal(text: str) -> Decimal | None:
    """Read a finite number of at most 50 digits exactly, so that 0.3 + 2 * 0.05 is 0.4.

    The result is None for another text, and for an exponent so large that writing the number would take
    hours.
    """
    try:
        number = Decimal(text) or Decimal(0)
    except InvalidOperation:
        return None
    is_short = number.is_finite() and len(number.as_tuple().digits) <= _MOST_DIGITS
    return number if is_short and abs(number.adjusted()) <= _LARGEST_EXPONENT else None


def _plain(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)


def _read_value(text: str, kinds: frozenset[Any]) -> Any:
    """Read one value: None, a truth value or a number if the field can have one, else the text."""
    if text.lower() in ("none", "unset") and type(None) in kinds:
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = _decimal(text) if kinds & {int, float} else None
    return text if number is None else _plain(number)


def _kinds(field: str) -> frozenset[Any]:
    """Return the types in a field's type hint, and its choices."""
    if field == "kind":
        return frozenset({"kind"})
    kinds = [kind for _, owner in field_owners(field) for kind in field_types(owner)[field]]
    choices = (typing.get_args(kind) if typing.get_origin(kind) is Literal else [kind] for kind in kinds)
    return frozenset(itertools.chain.from_iterable(choices))
