"""`grid`: every combination of the values that some fields of a run take."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Literal

from anchorlens.configuration import field_types
from anchorlens.runs.identity import same_value
from anchorlens.runs.presets import preset_parts
from anchorlens.runs.run_config import Parts, RunConfig, field_owners, merged, sorted_by_part
from anchorlens.safe import printable, read_json, shown
from anchorlens.tasks.kinds import tasks
from anchorlens.tasks.shared.base import Task

ALIASES = {"layers": "n_layers", "heads": "n_heads"}
"""Short names of fields that are swept often, on the command line and of a map's axes."""
MOST_CELLS = 100_000
_LONGEST_TEXT = 1_000_000
"""Characters of an axis."""
_LARGEST_EXPONENT = 400
"""Of ten, in a number of an axis; beyond the range of floats."""
_MOST_DIGITS = 50
"""Of a number of an axis."""


def grid(
    base: str | Parts = "quick", axes: Mapping[str, Any] | None = None, **fields: Any
) -> list[RunConfig]:
    """Every combination of the values on the axes, as runs.

    Args:
        base: a preset's name, or the parts of a run's configuration.
        axes: field of the task, of ModelConfig or of TrainConfig -> its values: a sequence, or text as on the
            command line (`axis_values`). The last axis varies fastest.
        **fields: fields with one value for all.

    Returns:
        One run for each combination, none twice.

    Raises:
        ValueError: an unknown preset or field, an axis without values, an unusable value, or more than
            100,000 cells.

    Example:
        >>> runs = grid("quick", {"gamma": "0.3:0.8:0.25", "seed": "0:3"}, steps=1000)
        >>> [(run.model.gamma, run.train.seed) for run in runs][:4]
        [(0.3, 0), (0.3, 1), (0.3, 2), (0.55, 0)]

    Source: the grids of arXiv 2405.05409 and 2501.08537.
    """
    parts = preset_parts(base) if isinstance(base, str) else base
    parts = merged(parts, sorted_by_part(fields))
    values = {name: axis_values(name, given) for name, given in (axes or {}).items()}
    if fields.keys() & values.keys():
        raise ValueError(f"{sorted(fields.keys() & values.keys())[0]} has both a value and an axis; give one")
    n_cells = 1
    for each in values.values():
        n_cells *= len(each)
    if n_cells > MOST_CELLS:
        raise ValueError(
            f"a sweep must have at most {MOST_CELLS:,} cells, got {n_cells:,}; take fewer values"
        )
    tasks: dict[Any, Task] = {}  # cells of one task share it: its tables are made once
    runs = []
    for cell in product(*values.values()):
        each = merged(parts, sorted_by_part(dict(zip(values, cell, strict=True))))
        key = tuple((name, id(value)) for name, value in each.get("task", {}).items())  # all of them live
        runs.append(RunConfig.from_dict(each, tasks.get(key)))
        tasks[key] = runs[-1].task
    return list({same_value(run.to_dict()): run for run in runs}.values())


def axis_values(name: str, given: Any) -> tuple[Any, ...]:
    """The values of one axis.

    Args:
        name: the field.
        given: a sequence of values; one value; or text: values separated by commas, each of them one value
            or a range. `a:b` is the integers a, ..., b - 1, as Python's range; `a:b:step` goes from a to b
            in steps, both ends included.

    Returns:
        The values in the order given, none twice.

    Raises:
        ValueError: an unknown field, no value, or a range that is none.

    >>> axis_values("gamma", "0.3:0.5:0.05")
    (0.3, 0.35, 0.4, 0.45, 0.5)
    >>> axis_values("seed", "0:3"), axis_values("weight_decay", "0,0.01,1"), axis_values("n_layers", [2, 3])
    ((0, 1, 2), (0, 0.01, 1), (2, 3))
    """
    sorted_by_part({name: None})
    if isinstance(given, str) and not _is_plain(name):
        given = [_read_json(name, given)]
    elif isinstance(given, str):
        given = [value for part in _parts(name, given) for value in _part_values(name, part.strip())]
    elif not isinstance(given, Sequence | range) and hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, range) and given and (given[-1] - given[0]) // given.step >= MOST_CELLS:
        raise ValueError(f"the axis {name} must have at most {MOST_CELLS:,} values; take a larger step")
    values = list(given) if isinstance(given, Sequence | range) and not isinstance(given, str) else [given]
    if len(values) > MOST_CELLS:
        raise ValueError(f"the axis {name} must have at most {MOST_CELLS:,} values, got {len(values):,}")
    if not values:
        raise ValueError(f"the axis {name} must have at least one value, got none")
    return tuple({repr(value): value for value in values}.values())


def _parts(name: str, given: str) -> list[str]:
    """What stands between the commas."""
    if len(given) > _LONGEST_TEXT or given.count(",") >= MOST_CELLS:
        raise ValueError(f"the axis {name} must have at most {MOST_CELLS:,} values, got {shown(given)}")
    return given.split(",")


def _part_values(name: str, text: str) -> list[Any]:
    """The values of what stands between two commas."""
    bounds = text.split(":")
    if len(bounds) == 1 or not _is_number(name):
        return [_read(name, text)]
    numbers = [_decimal(name, text, bound) for bound in bounds]
    if len(numbers) == 2:
        if any(number != number.to_integral_value() for number in numbers):
            example = printable(text, 60)
            raise ValueError(f"the range {example!r} of {name} must have a step, for example {example}:0.1")
        numbers = [numbers[0], numbers[1] - 1, Decimal(1)]
    if len(numbers) != 3 or numbers[2] <= 0 or numbers[1] < numbers[0]:
        raise ValueError(
            f"a range of {name} must be first:last:step with first <= last and step > 0, or first:end of "
            f"integers with first < end, got {shown(text)}"
        )
    first, last, step = numbers
    if (last - first) / step >= MOST_CELLS:
        raise ValueError(
            f"the range {shown(text)} of {name} has more than {MOST_CELLS:,} values; take a larger step"
        )
    n_steps = int((last - first) / step)
    return [_plain(first + k * step) for k in range(n_steps + 1)]


def _decimal(name: str, text: str, bound: str) -> Decimal:
    """A bound of a range, exactly: 0.3 + 2 * 0.05 is 0.4."""
    try:
        return _sane_decimal(bound.strip())
    except ValueError:
        raise ValueError(
            f"the range {shown(text)} of {name} must be made of numbers, got {shown(bound)}"
        ) from None


def _sane_decimal(text: str) -> Decimal:
    """A number of at most 50 digits within the range of floats, exactly.

    Raises:
        ValueError: anything else, which may be a number that takes an hour to write out.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("no number") from None
    if not number.is_finite() or len(number.as_tuple().digits) > _MOST_DIGITS:
        raise ValueError("no finite number, or one of too many digits")
    if number and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError("too large or too small")
    return number if number else Decimal(0)


def _plain(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)


def _read(field: str, text: str) -> Any:
    """One value as text: a number where the field can be one, else the text."""
    kinds = _kinds(field)
    if text.lower() in ("none", "unset") and type(None) in kinds:
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _is_number(field):
        try:
            return _plain(_sane_decimal(text))
        except (ValueError, OverflowError):
            pass
    return text


def _read_json(name: str, text: str) -> Any:
    """The value of a field that is no plain one."""
    try:
        return read_json(text)
    except ValueError as error:
        raise ValueError(f"{name} must be JSON, got {shown(text)}, which {error}") from None


def _is_plain(field: str) -> bool:
    """Whether a value of a field is a number, a word or nothing."""
    return all(kind in (int, float, str, bool, type(None)) or isinstance(kind, str) for kind in _kinds(field))


def _is_number(field: str) -> bool:
    return bool({int, float} & _kinds(field))


def _kinds(field: str) -> frozenset[Any]:
    """The types that a field's hint names."""
    return _kinds_in(field, tasks())


@functools.cache
def _kinds_in(field: str, known: tuple[type[Task], ...]) -> frozenset[Any]:
    """Those of the tasks that there are now; tasks can be registered between two calls."""
    if field == "kind":
        return frozenset({"kind"})
    kinds = {kind for _, owner in field_owners(field) for kind in field_types(owner)[field]}
    words = {word for kind in kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)}
    return frozenset({kind for kind in kinds if typing.get_origin(kind) is not Literal} | words)
