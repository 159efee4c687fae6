"""What a recipe changes on the way: values in windows, weights rescaled, a penalty on their complexity.

| field              | for example            | what happens                                                |
|--------------------|------------------------|-------------------------------------------------------------|
| weight_decay, lr   | 0.01 0.25:0.5=1.0      | 1.0 in the second quarter of the run, .01 before and after  |
| weight_decay_qk    | 0 0.5:1=1.0..0.1       | of W_Q and W_K alone: in the second half from 1.0 to .1     |
| rescale            | all=0.5@0 qk=2@300     | all matrices are halved before update 0, W_Q and W_K        |
|                    |                        | doubled before update 300                                   |
| penalty            | nuclear:qk=0.001@0.5:1 | in the second half .001 times the nuclear norms of W_Q and  |
|                    |                        | W_K of every layer and head are added to the loss           |

Several stand side by side with a space between them. A window FROM:TO is in fractions of the run's updates,
0..1: of n updates it holds those from round(FROM n) to round(TO n) - 1. All of it is a function of the step,
so that a run that was interrupted needs nothing more to go on.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from anchorlens.configuration import check_number
from anchorlens.safe import safe_repr

ALL = "all"
"""Every weight matrix, whatever its part; biases and LayerNorms are no matrices."""
PENALTIES = ("nuclear", "stable_rank")
"""`nuclear`: the sum of a matrix's singular values; `stable_rank`: ||W||_F^2 / ||W||_2^2."""

_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_WINDOW = re.compile(rf"{_NUMBER}:{_NUMBER}={_NUMBER}(?:\.\.{_NUMBER})?", re.ASCII)
_RESCALE = re.compile(rf"(\w+)={_NUMBER}@(\d+)", re.ASCII)
_PENALTY = re.compile(rf"(\w+):([\w.]+)={_NUMBER}(?:@{_NUMBER}:{_NUMBER})?", re.ASCII)
_LONGEST = 1000
"""Characters of a field."""


class Window(NamedTuple):
    """Part of the run, and the value that holds there."""

    first: float
    """Where it begins, in fractions of the run, 0..1."""
    end: float
    """Where it ends, in fractions of the run, above `first`."""
    value: float
    """From its first update on."""
    last: float
    """At its last update: a straight line leads there."""

    def steps(self, total: int) -> range:
        """Its updates, of `total`."""
        return range(round(self.first * total), round(self.end * total))

    def at(self, step: int, total: int) -> float | None:
        """The value at an update; None where the window does not hold."""
        steps = self.steps(total)
        if step not in steps:
            return None
        if self.last == self.value:
            return self.value
        return self.value + (self.last - self.value) * (step - steps.start) / max(1, len(steps) - 1)

    def in_words(self, total: int) -> str:
        """Its value and its updates, counted from 0."""
        steps = self.steps(total)
        line = "" if self.last == self.value else f", in a straight line to {_short(self.last)},"
        return f"{_short(self.value)}{line} in updates {steps.start} to {steps.stop - 1}"

    def __str__(self) -> str:
        value = (
            _short(self.value) if self.last == self.value else f"{_short(self.value)}..{_short(self.last)}"
        )
        return f"{_short(self.first)}:{_short(self.end)}={value}"


class Windowed(NamedTuple):
    """A value for every update of a run."""

    base: float | None
    """Outside of the windows; None: what the field has otherwise."""
    windows: tuple[Window, ...]
    """In order; no two hold at one update."""

    def __str__(self) -> str:
        return " ".join([*([] if self.base is None else [_short(self.base)]), *map(str, self.windows)])


class Rescale(NamedTuple):
    """Weight matrices that are multiplied by a factor, once."""

    part: str
    """embedding, qk, vo, mlp, or all."""
    factor: float
    """Above 0."""
    step: int
    """Updates made before it."""

    def __str__(self) -> str:
        return f"{self.part}={_short(self.factor)}@{self.step}"


class Penalty(NamedTuple):
    """A term of the loss: a weight times the complexity of some weight matrices, summed over them."""

    kind: str
    """One of `PENALTIES`."""
    matrices: str
    """A part (embedding, qk, vo, mlp, all), or a matrix by the end of its name: W_Q, blocks.0.attn.W_Q."""
    window: Window
    """When, and the weight."""

    def __str__(self) -> str:
        first, end, weight, _ = map(_short, self.window)
        return f"{self.kind}:{self.matrices}={weight}" + (
            "" if self.window[:2] == (0, 1) else f"@{first}:{end}"
        )


def value_at(value: float | str, step: int, total: int) -> float:
    """The value of a field at the update from `step` to `step + 1`.

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
def read_schedule(text: str, name: str = "the schedule") -> Windowed:
    """A value and windows, or windows alone.

    Raises:
        ValueError: something else, windows outside of the run or two at one time; values are not checked.

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
                f"{name} must be a number, or windows like 0.01 0.25:0.5=1.0 (base value, then from:to=value "
                f"in fractions of the run, a line from:to=value..value), got {safe_repr(text)}"
            )
    windows.sort()
    for one, other in itertools.pairwise(windows):
        if other.first < one.end:
            raise ValueError(
                f"the windows of {name} must not overlap, got {one} and {other}; end one earlier"
            )
    return Windowed(base, tuple(windows))


def checked_schedule(
    name: str, value: float | str, default: float | None, total: int, **bounds: Any
) -> float | str:
    """A field as it is kept: a number, or a schedule with its base, written in one way.

    Args:
        name: what errors call it.
        value: a number, or text as `read_schedule` reads it.
        default: the base where the text has none.
        total: updates of the run.
        **bounds: of every value, as `check_number` takes them.

    Raises:
        ValueError: no schedule, a value out of its bounds, a window without an update, or no base.
    """
    schedule = Windowed(value, ()) if not isinstance(value, str) else read_schedule(value, name)
    base = schedule.base
    if base is None:
        base = default
    if base is None:
        raise ValueError(f"{name} must begin with its value outside of windows, got {safe_repr(value)}")
    values = [(name, base)]
    for window in schedule.windows:
        _check_has_updates(name, window, total)
        values += [(f"{name} in the window {window}", one) for one in (window.value, window.last)]
    for called, one in values:
        check_number(called, one, **bounds)
    return str(Windowed(base, schedule.windows)) if schedule.windows else base


def with_base(value: object, otherwise: object) -> object:
    """A schedule without a base gets the one of what it replaces; all else stays as it is.

    >>> with_base("0.25:0.5=1.0", 0.1), with_base("0 0.25:0.5=1.0", 0.1), with_base(0.3, 0.1)
    ('0.1 0.25:0.5=1', '0 0.25:0.5=1.0', 0.3)
    """
    if not isinstance(value, str) or isinstance(otherwise, bool):
        return value
    try:
        own = read_schedule(value)
        base = read_schedule(otherwise).base if isinstance(otherwise, str) else otherwise
    except ValueError:
        return value  # whoever takes it says what is wrong
    if own.base is not None or not isinstance(base, int | float):
        return value
    return str(Windowed(base, own.windows))


@functools.lru_cache(maxsize=1024)
def read_rescale(text: str, total: int) -> tuple[Rescale, ...]:
    """What is rescaled when, in the order of the steps.

    Raises:
        ValueError: something else, a factor that is not positive, or a step that is not of the run.
    """
    found = []
    for item in _items("rescale", text, "part=factor@step, all=0.5@0 for example"):
        parts = _RESCALE.fullmatch(item)
        if parts is None:
            raise ValueError(
                f"rescale must be part=factor@step, all=0.5@0 for example, several with a space between, "
                f"got {safe_repr(item)}"
            )
        part, factor, step = parts[1], float(parts[2]), int(parts[3])
        check_number(f"the factor of rescale {item}", factor, above=0, limit=1e30)
        check_number(f"the step of rescale {item}", step, minimum=0, maximum=total - 1, integer=True)
        found.append(Rescale(part, factor, step))
    found.sort(key=lambda one: one.step)
    if len({(one.step, one.part) for one in found}) < len(found):
        raise ValueError(f"rescale must name a part once for each step, got {safe_repr(text)}")
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def read_penalty(text: str, total: int) -> tuple[Penalty, ...]:
    """The terms that are added to the loss.

    Raises:
        ValueError: something else, an unknown kind, a negative weight, or a window that is none.
    """
    found = []
    form = f"{' or '.join(PENALTIES)}:matrices=weight, nuclear:qk=0.001@0.5:1 for example"
    for item in _items("penalty", text, form):
        parts = _PENALTY.fullmatch(item)
        if parts is None or parts[1] not in PENALTIES:
            raise ValueError(f"penalty must be {form}, several with a space between, got {safe_repr(item)}")
        kind, matrices, weight, first, end = parts.groups()
        window = _window("penalty", item, first or "0", end or "1", weight, None)
        check_number(f"the weight of penalty {item}", window.value, minimum=0, limit=1e30)
        _check_has_updates("penalty", window, total)
        found.append(Penalty(kind, matrices, window))
    return tuple(found)


def _items(name: str, text: str, form: str) -> list[str]:
    items = text.split()
    if not items or len(text) > _LONGEST:
        raise ValueError(f"{name} must be {form}, of at most {_LONGEST} characters, got {safe_repr(text)}")
    return items


def _window(name: str, item: str, first: str, end: str, value: str, last: str | None) -> Window:
    window = Window(float(first), float(end), float(value), float(value if last is None else last))
    if not 0 <= window.first < window.end <= 1:
        raise ValueError(
            f"a window of {name} must be from:to in fractions of the run, 0 <= from < to <= 1, "
            f"got {safe_repr(item)}"
        )
    return window


def _check_has_updates(name: str, window: Window, total: int) -> None:
    if not window.steps(total):
        raise ValueError(
            f"a window of {name} must hold at least one of the run's {total:,} updates, got {window}"
        )


def _short(value: float) -> str:
    """A number in as few characters as say it exactly.

    >>> [_short(value) for value in (1.0, 0.25, 1e-05)]
    ['1', '0.25', '1e-05']
    """
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))


def in_words(name: str, value: object, total: int) -> str | None:
    """What a field changes on the way, of a run of `total` updates; None where it changes nothing.

    >>> in_words("weight_decay", "0.01 0.25:0.5=1", 1500), in_words("weight_decay", 0.01, 1500)
    ('1 in updates 375 to 749', None)
    >>> in_words("rescale", "all=0.5@0 qk=2@300", 1500)
    'all times 0.5 before update 0, qk times 2 before update 300'
    """
    if not isinstance(value, str):
        return None
    if name == "rescale":
        words = [
            f"{one.part} times {_short(one.factor)} before update {one.step}"
            for one in read_rescale(value, total)
        ]
    elif name == "penalty":
        words = [
            f"{one.kind} of {one.matrices} times {one.window.in_words(total)}"
            for one in read_penalty(value, total)
        ]
    else:
        words = [window.in_words(total) for window in read_schedule(value, name).windows]
    return ", ".join(words)


def joined(items: Sequence[Rescale] | Sequence[Penalty]) -> str:
    """What was read, written in one way."""
    return " ".join(map(str, items))
