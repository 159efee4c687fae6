"""Progress of a run: a bar in a terminal, a curve in a notebook, and elsewhere a line at intervals."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from anchorlens.configuration import check_number
from anchorlens.texts import safe_text
from anchorlens.views import html

LINE_SECONDS, COMMAND_LINE_SECONDS = 5.0, 30.0
"""Seconds between two lines where there is no terminal: for a call in Python, and for a command."""
REDRAW_SECONDS = 1.0
"""Minimum time between two drawings in a notebook."""

Lines = Sequence[tuple[int, Mapping[str, Any]]]
"""New log lines, each with the index of its run."""


class Show(Protocol):
    """A function that shows the progress of a run."""

    def __call__(self, done: int, text: str, lines: Lines = (), skipped: int | None = None) -> None:
        """Take in the progress.

        Args:
            done: steps done.
            text: a short text; an empty one keeps the last text.
            lines: new log lines, if a single run is shown.
            skipped: how many of the steps were done before and took no time now; if left out, `done` of the
                first call.
        """


class Progress:
    """The progress of a run: the number of steps done, and the time left."""

    def __init__(self, total: int, what: str, unit: str) -> None:
        """Begin with nothing done."""
        self.total = total
        self.what, self.unit = what, unit
        self.done, self.text = 0, ""
        self.log: list[Mapping[str, Any]] = []
        self.has_ended = False
        self._began = self._latest = time.monotonic()
        self._skipped: int | None = None

    def update(self, done: int, text: str, lines: Lines = (), skipped: int | None = None) -> None:
        """Update the progress, with the arguments of `Show`."""
        self._latest = time.monotonic()
        if self._skipped is None:
            self._began, self._skipped = self._latest, done
        # fewer are done than before where a run is resumed from an earlier state than its log tells
        self._skipped = min(self._skipped, done) if skipped is None else skipped
        self.done, self.text = done, text or self.text
        self.log += [line for _, line in lines]

    @property
    def seconds_left(self) -> float | None:
        """The estimated number of seconds left, or None before the first step."""
        made = self.done - (self._skipped or 0)
        if made <= 0 or self._latest <= self._began:
            return None
        left = (self.total - self.done) * (self._latest - self._began) / made
        return max(0.0, left - (time.monotonic() - self._latest))

    def __repr__(self) -> str:
        left = self.seconds_left
        if self.has_ended:
            time_words = f" in {duration(self._latest - self._began)}"
        else:
            time_words = ", time left not known yet" if left is None else f", {duration(left)} left"
        text = f"; {self.text}" if self.text else ""
        return f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s{time_words}{text}"

    _repr_html_ = html


@contextlib.contextmanager
def progress_bar(
    total: int,
    *,
    enabled: bool | float | None = None,
    what: str = "training",
    unit: str = "step",
    ask: Callable[[], int] | None = None,
) -> Iterator[Show]:
    """Show the progress of a run, on stderr or in a notebook.

    Args:
        total: the number of steps of the run.
        enabled: the display of progress. None shows a bar in a terminal, a curve in a notebook, and elsewhere
            a line every 5 s. A number sets the seconds between lines. True also shows a bar outside a
            terminal. False shows nothing.
        what: the text before the bar.
        unit: the word for one step.
        ask: the function that another thread calls before each line, and that returns the number of steps
            done. Default: the step of the last update is shown.

    Yields:
        The function to call with the progress of the run.

    Raises:
        ValueError: If `enabled` is not None, a boolean or a number above 0.
    """
    if enabled is not None and not isinstance(enabled, bool):
        check_number("progress", enabled, above=0)
    progress = Progress(total, what, unit)
    if enabled is False:
        display = contextlib.nullcontext(lambda: None)
    elif _in_notebook():
        display = _in_a_cell(progress)
    elif enabled is True or (sys.stderr is not None and sys.stderr.isatty()):
        display = _in_a_terminal(progress)
    else:
        display = _in_lines(progress, enabled or LINE_SECONDS, ask)
    with display as redraw:

        def update(done: int, text: str, lines: Lines = (), skipped: int | None = None) -> None:
            progress.update(done, text, lines, skipped)
            redraw()

        try:
            yield update
        finally:
            progress.has_ended = True


@contextlib.contextmanager
def _in_a_terminal(shown: Progress) -> Iterator[Callable[[], None]]:
    """Show a progress bar with a text; in a narrow terminal the bar shrinks before the text is cut."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    class TimeLeft(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            left = shown.seconds_left
            return Text("" if left is None else f"{duration(left)} left")

    console = Console(stderr=True)
    text = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns: list[Any] = [
        progress.TextColumn(shown.what),
        progress.BarColumn(max(4, min(40, console.width - 72))),
        progress.MofNCompleteColumn(),
        TimeLeft(),
        progress.TextColumn("{task.description}", table_column=text),
    ]
    with progress.Progress(*columns, console=console, expand=True) as display:
        bar = display.add_task("", total=shown.total)
        yield lambda: display.update(bar, completed=shown.done, description=shown.text)


@contextlib.contextmanager
def _in_a_cell(progress: Progress) -> Iterator[Callable[[], None]]:
    """Show the progress in one output of the notebook's cell, which is replaced during the run."""
    from IPython.display import display

    shown: Any = display(progress, display_id=True)
    drawn = time.monotonic()

    def redraw() -> None:
        nonlocal drawn
        if time.monotonic() - drawn >= REDRAW_SECONDS:
            shown.update(progress)
            drawn = time.monotonic()

    try:
        yield redraw
    finally:
        shown.update(progress)


@contextlib.contextmanager
def _in_lines(
    progress: Progress, seconds: float, ask: Callable[[], int] | None
) -> Iterator[Callable[[], None]]:
    """Write a line to stderr every `seconds`, even without changes, and a last line at the end.

    Nothing is written if the run ends before the first line.
    """
    ended, n_lines = threading.Event(), 0

    def report() -> None:
        if ask is not None:
            progress.update(ask(), "")
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it, or it is closed
            sys.stderr.write(f"{safe_text(repr(progress), None)}\n")
            sys.stderr.flush()

    def report_regularly() -> None:
        nonlocal n_lines
        while not ended.wait(seconds):
            report()
            n_lines += 1

    reporter = threading.Thread(target=report_regularly, daemon=True)
    reporter.start()
    try:
        yield lambda: None
    finally:
        ended.set()
        reporter.join()
    if n_lines:
        report()


def duration(seconds: float) -> str:
    """Return a duration in seconds as text with units.

    >>> duration(90), duration(725), duration(12000)
    ('90 s', '12 min 5 s', '3 h 20 min')
    """
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
