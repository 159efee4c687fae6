"""Interventions of a recipe during training: values that change in windows, and changes of weight matrices.

| field              | for example            | what happens                                                |
|--------------------|------------------------|-------------------------------------------------------------|
| weight_decay, lr   | 0.01 0.25:0.5=1.0      | 1.0 in the second quarter of the run, .01 before and after  |
| weight_decay_qk    | 0 0.5:1=1.0..0.1       | for W_Q and W_K: in the second half from 1.0 to .1          |
| rescale            | all=0.5@0 qk=2@300     | all matrices are halved before update 0, W_Q and W_K        |
|                    |                        | doubled before update 300                                   |
| weight_noise       | W_Q=0.5@300            | before update 300 Gaussian noise is added to every W_Q, of  |
|                    |                        | half the root mean square of its entries                    |
| penalty            | nuclear:qk=0.001@0.5:1 | in the second half .001 times the nuclear norms of W_Q and  |
|                    |                        | W_K of every layer and head are added to the loss           |
| max_rank           | W_Q=2@0:0.5            | in the first half W_Q of every head is replaced after each  |
|                    |                        | update by the nearest matrix of rank 2                      |
| freeze             | W_Q biases             | no W_Q and no bias changes                                  |

Several values are separated by spaces. A window FROM:TO is in fractions of the run's updates, 0..1: of n
updates it covers those from round(FROM n) to round(TO n) - 1. All interventions are functions of the step, so
that an interrupted run needs no further state to continue.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from anchorlens.configuration import check_number, exactly
from anchorlens.texts import safe_repr

ALL = "all"
"""Stands for every weight matrix, whatever its part; biases and LayerNorms are no matrices."""
BIASES = "biases"
"""Stands for every bias in `freeze`, those of LayerNorms too."""
PENALTIES = ("nuclear", "stable_rank")
"""`nuclear`: the sum of a matrix's singular values; `stable_rank`: ||W||_F^2 / ||W||_2^2."""
CHANGES: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "rescale": ("all=0.5@0", {"above": 0, "limit": 1e30}, "times {}"),
    "weight_noise": (
        "W_Q=0.5@300",
        {"minimum": 0, "limit": 1e30},
        "get noise of {} times the size of their entries",
    ),
    "penalty": ("nuclear:qk=0.001@0.5:1", {"minimum": 0, "limit": 1e30}, "times {}"),
    "max_rank": ("W_Q=2@0:0.5", {"minimum": 1, "maximum": 1_000_000, "integer": True}, "of rank {} at most"),
    "freeze": ("W_Q@0:0.5", {}, "stay as they are"),
}
"""Field for interventions on weight matrices -> an example, the bounds of its value, and its description."""
ONCE = ("rescale", "weight_noise")
"""The fields for an intervention before one update; the others act in a window or throughout the run."""

_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_WINDOW = re.compile(rf"{_NUMBER}:{_NUMBER}={_NUMBER}(?:\.\.{_NUMBER})?", re.ASCII)
_CHANGE = re.compile(rf"(?:(\w+):)?([\w.]+)(?:={_NUMBER})?(?:@(?:(\d+)|{_NUMBER}:{_NUMBER}))?", re.ASCII)
_LONGEST = 1000
"""Largest number of characters of a field."""


class Window(NamedTuple):
    """A part of the run, and the value of a field in this part."""

    first: float
    """The start of the window as a fraction of the run, 0..1."""
    end: float
    """The end of the window as a fraction of the run, above `first` and at most 1."""
    value: float
    """The value at the first update of the window."""
    last: float
    """The value at the last update of the window. Between first and last update, the value changes
    linearly."""

    def steps(self, total: int) -> range:
        """Return the indices of the window's updates in a run of `total` updates."""
        return range(round(self.first * total), round(self.end * total))

    def at(self, step: int, total: int) -> float | None:
        """Return the value at an update, or None if the update is outside the window."""
        steps = self.steps(total)
        if step not in steps:
            return None
        if self.last == self.value:
            return self.value
        return self.value + (self.last - self.value) * (step - steps.start) / max(1, len(steps) - 1)

    def in_words(self, total: int) -> str:
        """Describe the value of the window and its updates, which are counted from 0."""
        line = "" if self.last == self.value else f", in a straight line to {_short(self.last)},"
        return f"{_short(self.value)}{line} {self.in_updates(total)}"

    def in_updates(self, total: int) -> str:
        """Describe the updates of the window in words."""
        steps = self.steps(total)
        return f"in updates {steps.start} to {steps.stop - 1}"

    def __str__(self) -> str:
        first, end, value, last = map(_short, self)
        return f"{first}:{end}={value}" if last == value else f"{first}:{end}={value}..{last}"


class WindowedValue(NamedTuple):
    """A field's value at every update of a run."""

    base: float | None
    """The value outside the windows, or None for the field's default."""
    windows: tuple[Window, ...]
    """The windows in order, without overlap."""

    def __str__(self) -> str:
        return " ".join([*([] if self.base is None else [_short(self.base)]), *map(str, self.windows)])


class Change(NamedTuple):
    """An intervention on weight matrices, before one update or in a window of the run."""

    kind: str
    """The kind of a penalty from `PENALTIES`, or an empty text for other interventions."""
    matrices: str
    """A part (embedding, qk, vo, mlp), all, or a matrix by the end of its name: W_Q, blocks.0.attn.W_Q. In
    `freeze`, also `biases`."""
    value: Any
    """The factor, the relative size of the noise, the penalty's weight or the rank, or None for `freeze`."""
    when: Any
    """The number of updates made before the intervention, or a `Window` with the same value."""

    def in_words(self, does: str, total: int) -> str:
        """Describe the intervention, whose effect on a matrix is `does`, in a run of `total` updates."""
        kind = f"{self.kind} of " if self.kind else ""
        value = "" if self.value is None else _short(self.value)
        when = self.when.in_updates(total) if isinstance(self.when, Window) else f"before update {self.when}"
        return f"{kind}{self.matrices} {does.format(value)} {when}"

    def __str__(self) -> str:
        kind = f"{self.kind}:" if self.kind else ""
        value = "" if self.value is None else f"={_short(self.value)}"
        when = f"@{self.when}"
        if isinstance(self.when, Window):
            first, end = self.when[:2]
            when = "" if (first, end) == (0, 1) else f"@{_short(first)}:{_short(end)}"
        return f"{kind}{self.matrices}{value}{when}"


def value_at(value: float | str, step: int, total: int) -> float:
    """Return the value of a field at the update from `step` to `step + 1`.

    >>> [value_at("0.01 0.25:0.5=1.0 0.5:1=0..0.75", step, 8) for step in range(8)]
    [0.01, 0.01, 1.0, 1.0, 0.0, 0.25, 0.5, 0.75]
    """
    if not isinstance(value, str):
        return value
    schedule = read_schedule(value)
    values = (window.at(step, total) for window in schedule.windows)
    found = next((one for one in values if one is not None), schedule.base)
    assert found is not None  # a configuration's schedules have a base
    return found


@functools.lru_cache(maxsize=1024)
def read_schedule(text: str, name: str = "the schedule") -> WindowedValue:
    """Read the text of a schedule: an optional base value, followed by windows.

    Raises:
        ValueError: If the text is not a schedule, or windows overlap or lie outside the run. The function
            does not check the bounds of values.

    >>> read_schedule("0.25:0.5=1.0").windows
    (Window(first=0.25, end=0.5, value=1.0, last=1.0),)
    """
    base, windows = None, []
    for k, item in enumerate(_items(name, text, "windows like 0.01 0.25:0.5=1.0")):
        if found := _WINDOW.fullmatch(item):
            first, end, value, last = found.groups()
            windows.append(_window(name, item, first, end, value, last))
        elif k == 0 and re.fullmatch(_NUMBER, item, re.ASCII):
            base = float(item)
        else:
            raise ValueError(
                f"{name} must be a number, or a base value and windows such as 0.01 0.25:0.5=1.0, got "
                f"{safe_repr(text)}. A window is from:to=value, or from:to=value..value for a line, in "
                "fractions of the run"
            )
    windows.sort()
    for one, other in itertools.pairwise(windows):
        if other.first < one.end:
            raise ValueError(
                f"the windows of {name} must not overlap, got {one} and {other}. End the first window earlier"
            )
    return WindowedValue(base, tuple(windows))


def checked_schedule(name: str, value: str, default: float | None, total: int, **bounds: Any) -> float | str:
    """Return a field in its normal form: a number, or the text of a schedule with a base value.

    Args:
        name: the name of the field, for error messages.
        value: a text for `read_schedule`.
        default: the base value for a text without a base value.
        total: the number of updates of the run.
        **bounds: the bounds of every value, as arguments of `check_number`.

    Raises:
        ValueError: If the text is not a schedule, or the base value is missing.
        ValueError: If a value is out of bounds, or a window contains no updates.
    """
    schedule = read_schedule(value, name)
    base = default if schedule.base is None else schedule.base
    if base is None:
        raise ValueError(
            f"{name} must begin with a base value for steps outside windows, got {safe_repr(value)}. Add it"
        )
    values = [(name, base)]
    for window in schedule.windows:
        _check_has_updates(name, window, total)
        values += [(f"{name} in the window {window}", one) for one in (window.value, window.last)]
    for called, one in values:
        check_number(called, one, **bounds)
    return str(WindowedValue(base, schedule.windows)) if schedule.windows else base


def with_base(value: object, otherwise: object) -> object:
    """Return a schedule with the base value of `otherwise`, and any other value unchanged.

    A schedule that has a base value keeps this base value.

    >>> with_base("0.25:0.5=1.0", 0.1), with_base("0 0.25:0.5=1.0", 0.1), with_base(0.3, 0.1)
    ('0.1 0.25:0.5=1', '0 0.25:0.5=1.0', 0.3)
    """
    if not isinstance(value, str) or isinstance(otherwise, bool):
        return value
    try:
        own = read_schedule(value)
        base = read_schedule(otherwise).base if isinstance(otherwise, str) else otherwise
    except ValueError:
        return value  # the configuration raises the error
    if own.base is not None or not isinstance(base, int | float):
        return value
    return str(WindowedValue(base, own.windows))


@functools.lru_cache(maxsize=1024)
def read_changes(name: str, text: str | None, total: int) -> tuple[Change, ...]:
    """Read a field of `CHANGES`, and return its interventions, or an empty tuple if the field is unset.

    Interventions before single updates are in the order of the updates.

    Raises:
        ValueError: If the text has the wrong form, or a penalty is unknown.
        ValueError: If a value is out of bounds, or a step or window is outside the run.
        ValueError: If a step has two interventions on the same matrices.
    """
    if text is None:
        return ()
    example, bounds, _ = CHANGES[name]
    kinds = " or ".join(PENALTIES) + ":" if name == "penalty" else ""
    form = f"{kinds}matrices{'=value' if bounds else ''}{'@step' if name in ONCE else ''}"
    form = f"{form}, {example} for example, with spaces between entries"
    found = [_change(name, item, total, form) for item in _items(name, text, form)]
    if name in ONCE:
        found.sort(key=lambda one: one.when)
        if len({(one.when, one.matrices) for one in found}) < len(found):
            raise ValueError(
                f"{name} must list each matrix at most once per step, got {safe_repr(text)}. Remove the "
                "repetition"
            )
    return tuple(found)


def _change(name: str, item: str, total: int, form: str) -> Change:
    """Read one entry of a field of `CHANGES`, which must have the form that `form` describes."""
    bounds, parts = CHANGES[name][1], _CHANGE.fullmatch(item)
    wrong = ValueError(f"{name} must be {form}, got {safe_repr(item)}. Correct {name}")
    if parts is None:
        raise wrong
    kind, matrices, value, step, first, end = parts.groups()
    kinds = PENALTIES if name == "penalty" else (None,)
    if kind not in kinds or (value is None) == bool(bounds) or (step is None) == (name in ONCE):
        raise wrong
    number = None if value is None else float(value)
    if bounds:
        kind_of_number = int if "integer" in bounds else float
        check_number(f"the value of {name} {item}", exactly(number, kind_of_number), **bounds)
    if step is not None:
        check_number(f"the step of {name} {item}", int(step), minimum=0, maximum=total - 1, integer=True)
        return Change("", matrices, number, int(step))
    window = _window(name, item, first or "0", end or "1", value or "1", None)
    _check_has_updates(name, window, total)
    return Change(kind or "", matrices, number, window)


def _items(name: str, text: str, form: str) -> list[str]:
    items = text.split()
    if not items or len(text) > _LONGEST:
        raise ValueError(f"{name} must be {form}, with at most {_LONGEST} characters, got {safe_repr(text)}")
    return items


def _window(name: str, item: str, first: str, end: str, value: str, last: str | None) -> Window:
    window = Window(float(first), float(end), float(value), float(value if last is None else last))
    if not 0 <= window.first < window.end <= 1:
        raise ValueError(
            f"a window of {name} must be from:to in fractions of the run with 0 <= from < to <= 1, got "
            f"{safe_repr(item)}. Correct the window"
        )
    return window


def _check_has_updates(name: str, window: Window, total: int) -> None:
    if not window.steps(total):
        raise ValueError(
            f"a window of {name} must contain at least one of the run's {total:,} updates, got {window}. Use "
            "a longer window"
        )


def _short(value: float) -> str:
    """Return the shortest text that gives the number exactly.

    >>> [_short(value) for value in (1.0, 0.25, 1e-05)]
    ['1', '0.25', '1e-05']
    """
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))


def in_words(name: str, value: object, total: int) -> str | None:
    """Describe a field's changes in a run of `total` updates, or return None if there are no changes.

    >>> in_words("weight_decay", "0.01 0.25:0.5=1", 1500), in_words("weight_decay", 0.01, 1500)
    ('1 in updates 375 to 749', None)
    >>> in_words("rescale", "all=0.5@0 qk=2@300", 1500)
    'all times 0.5 before update 0, qk times 2 before update 300'
    """
    if not isinstance(value, str):
        return None
    if name in CHANGES:
        words = [one.in_words(CHANGES[name][2], total) for one in read_changes(name, value, total)]
    else:
        words = [window.in_words(total) for window in read_schedule(value, name).windows]
    return ", ".join(words)
